// Inference from int8 by VPDPBUSD; elsewhere, and for compilers that do not know it, nothing.
#include "headers.h"
#ifdef ELMO_VNNI
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512vnni,avx512f,avx512bw,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512vnni,avx512f,avx512bw,avx512vl,avx2,fma,f16c")
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // in GCC 12's own headers
#endif
#define ELMO_F16C 1
#define ELMO_VPDPBUSD 1
#define VARIANT vpdpbusd_unit
#define UNIT vpdpbusd
#define FORMAT Int8
#include "unit.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
namespace elmo {
const Precision* vpdpbusd() { return nullptr; }
}
#endif
