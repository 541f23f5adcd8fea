// All kernels of a variant, in its own namespace. The standard headers come first, so that nothing of theirs is
// compiled for a processor that this machine may not be.
#include "convolution.h"
#include "digest.h"
#include "linear.h"
#include "lstm.h"
#include "mixing.h"

#define TEXT_OF(name) #name
#define NAME(name) TEXT_OF(name)
#define JOINED(a, b) a##b
#define FUNCTION(name) JOINED(name, _kernels)

namespace elmo {
const Kernels* FUNCTION(VARIANT)() {
  using namespace VARIANT;
  static const Kernels kernels = {NAME(VARIANT), forward, backward, convolve, convolve_backward,
                                  linear,         highway, tanh_of,  digest,   activate,         mix};
  return &kernels;
}
}  // namespace elmo
