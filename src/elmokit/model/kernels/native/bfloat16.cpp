// Products of bfloat16 for training, where the processor has VDPBF16PS; elsewhere, and for other compilers, nothing.
#include "headers.h"
#ifdef ELMO_BFLOAT16
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx512bw,avx512vl,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512vl,avx2,fma")
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // in GCC 12's own headers
#endif
#define VARIANT bfloat16
#define LANES 16
#include "bfloat16_highway.h"
#include "bfloat16_lstm.h"
#include "bfloat16_softmax.h"
#include "symmetric.h"

namespace elmo {
const Bfloat16Kernels* bfloat16_kernels() {
  using namespace VARIANT;
  static const Bfloat16Kernels kernels = {pack,           multiply,         pack_layer,      forward,
                                          backward,       pack_gradients,   weight_gradients, share_gradients,
                                          pack_softmax,   softmax_rows,     softmax_weights,  mirror,
                                          highway,        highway_backward, polynomials};
  return &kernels;
}
}  // namespace elmo
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
namespace elmo {
const Bfloat16Kernels* bfloat16_kernels() { return nullptr; }
}
#endif
