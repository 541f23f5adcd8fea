// All kernels of a variant, in its own namespace. The standard headers come first, so that nothing of theirs is
// compiled for a processor that this machine may not be.
#include "convolution.h"
#include "digest.h"
#include "linear.h"
#include "lstm.h"
#include "word_lstm.h"

#define TEXT_OF(name) #name
#define NAME(name) TEXT_OF(name)
#define JOINED(a, b) a##b
#define FUNCTION(name) JOINED(name, _kernels)

namespace elmo {
const Kernels* FUNCTION(VARIANT)() {
  using namespace VARIANT;
  static const Kernels kernels = {NAME(VARIANT),
                                  {{forward<Float32>, linear<Float32>, highway<Float32>},
                                   {forward<Float16>, linear<Float16>, highway<Float16>},
                                   {word_forward<Int8>, linear<Int8>, highway<Int8>},
                                   {word_forward<Bfloat16>, linear<Bfloat16>, highway<Bfloat16>}},
                                  backward, convolve, convolve_backward, tanh_of, digest};
  return &kernels;
}
}  // namespace elmo
