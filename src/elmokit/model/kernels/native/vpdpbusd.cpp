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
#define LANES 16
#define ROWS 8
#include "linear.h"
#include "word_lstm.h"

namespace elmo {
const Precision* vpdpbusd() {
  using namespace VARIANT;
  static const Precision precision = {word_forward<Int8>, linear<Int8>, highway<Int8>};
  return &precision;
}
}  // namespace elmo
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
