// Inference from bfloat16 by VDPBF16PS; elsewhere, and for compilers that do not know it, nothing.
#include "headers.h"
#ifdef ELMO_BFLOAT16
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx512bw,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512vl,avx2,fma,f16c")
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // in GCC 12's own headers
#endif
#define ELMO_F16C 1
#define ELMO_VDPBF16PS 1
#define VARIANT vdpbf16ps_unit
#define UNIT vdpbf16ps
#define FORMAT Bfloat16
#include "unit.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
namespace elmo {
const Precision* vdpbf16ps() { return nullptr; }
}
#endif
