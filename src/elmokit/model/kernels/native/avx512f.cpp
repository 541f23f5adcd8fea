#include "headers.h"
#ifdef ELMO_X86
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,f16c")
#endif
#define ELMO_F16C 1
#define VARIANT avx512f
#define LANES 16
#define ROWS 8  // of 32 registers, 16 for sums
#include "variant.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
namespace elmo {
const Kernels* avx512f_kernels() { return nullptr; }
}
#endif
