#include "headers.h"
#ifdef ELMO_X86
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#define ELMO_F16C 1
#define VARIANT avx2
#define LANES 8
#define ROWS 3  // of 16 registers, 12 for sums
#include "variant.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
namespace elmo {
const Kernels* avx2_kernels() { return nullptr; }
}
#endif
