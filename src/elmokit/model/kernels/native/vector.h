// Vectors of floats by the compiler's own extension (GCC, Clang): the same source for every kind of processor.
// A variant (avx2.cpp, avx512.cpp, portable.cpp) sets VARIANT, LANES and ROWS before it includes what is here.
#pragma once

namespace elmo {
namespace VARIANT {

// As wide as the machine: LANES floats. `Loose` is the same in memory, at any address.
typedef float Wide __attribute__((vector_size(4 * LANES)));
typedef float LooseWide __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t WideInts __attribute__((vector_size(4 * LANES)));
constexpr int WIDES = PANEL / LANES;  // of a panel's row

// Eight floats: the units of a panel, for what is done element by element.
typedef float Eight __attribute__((vector_size(32)));
typedef float LooseEight __attribute__((vector_size(32), aligned(4), may_alias));

static inline Wide load_wide(const float* p) { return *(const LooseWide*)p; }
static inline void store_wide(float* p, Wide v) { *(LooseWide*)p = v; }
static inline Eight load(const float* p) { return *(const LooseEight*)p; }
static inline void store(float* p, Eight v) { *(LooseEight*)p = v; }
static inline Eight all(float value) { return value - Eight{}; }

// Bound by +-limit; a NaN stays one.
static inline Eight bounded(Eight v, float limit) {
  const Eight high = all(limit), low = all(-limit);
  v = v > high ? high : v;
  return v < low ? low : v;
}

// Memory of its own, aligned, not filled. Nothing of the standard library's templates is used in a variant: the linker
// keeps one copy of such code for all variants, and that might be one that this processor cannot run.
template <class T>
struct Array {
  explicit Array(int64_t count) : held((T*)::operator new(sizeof(T) * count + 64, std::align_val_t(64))) {}
  ~Array() { ::operator delete(held, std::align_val_t(64)); }
  Array(const Array&) = delete;
  operator T*() const { return held; }
  T* held;
};

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Formats of weights whose arithmetic is that of floats; words.h has the others.
struct Float32 {
  typedef float Stored;
  static inline Wide get(const float* p) { return load_wide(p); }
};

struct Float16 {
  typedef uint16_t Stored;
  static inline Wide get(const uint16_t* p) {
#if defined(ELMO_F16C) && LANES == 16
    return (Wide)_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256((const __m256i*)p));
#elif defined(ELMO_F16C) && LANES == 8
    return (Wide)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#else
    Wide v;
    for (int i = 0; i < LANES; i++) v[i] = from_half(p[i]);
    return v;
#endif
  }
};

// tanh as a quotient of polynomials: within 5e-7 of the true one (tests/test_kernels.py). The rational approximation,
// its coefficients and its bound are Eigen's: generic_fast_tanh_float in Eigen/src/Core/MathFunctionsImpl.h (Copyright
// (C) 2014 Pedro Gonnet, (C) 2016 Gael Guennebaud), which is licensed under the Mozilla Public License 2.0,
// https://mozilla.org/MPL/2.0/.
struct Quotient {
  Eight over, under;
  Eight value() const { return over / under; }
};

static inline Quotient tanh_quotient(Eight x) {
  x = bounded(x, 7.90531110763549805f);
  const Eight s = x * x;
  Eight p = all(-2.76076847742355e-16f);
  p = p * s + 2.00018790482477e-13f;
  p = p * s - 8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  Eight q = all(1.19825839466702e-06f);
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return {x * p, q};
}

static inline Eight tanh(Eight x) { return tanh_quotient(x).value(); }
static inline Eight sigmoid(Eight x) { return 0.5f * tanh(0.5f * x) + 0.5f; }

// The same with fewer terms, of x / 2 ** HALVED: within 2e-5, for where operands have eight bits.
template <int HALVED>
static inline Quotient short_tanh_quotient(Eight x) {
  constexpr float a = HALVED ? 0.5f : 1.0f, b = a * a;
  x = bounded(x, 6.25f / a);
  const Eight s = x * x;
  Eight p = all(1.4641021843999624e-03f * a * b * b);
  p = p * s + 0.11396484822034836f * a * b;
  p = p * s + 0.9999626874923706f * a;
  Eight q = all(5.323209552443586e-05f * b * b * b);
  q = q * s + 1.729874685406685e-02f * b * b;
  q = q * s + 0.447182297706604f * b;
  q = q * s + 1.0f;
  return {x * p, q};
}

// tanh, and twice the sigmoid, which is tanh of half the value and 1.
struct Fine {
  static inline Quotient tanh(Eight x) { return tanh_quotient(x); }
  static inline Quotient sigmoid(Eight x) { return with_one(tanh_quotient(0.5f * x)); }
  static inline Quotient with_one(Quotient half) { return {half.over + half.under, half.under}; }
};

struct Short {
  static inline Quotient tanh(Eight x) { return short_tanh_quotient<0>(x); }
  static inline Quotient sigmoid(Eight x) { return Fine::with_one(short_tanh_quotient<1>(x)); }
};

}  // namespace VARIANT
}  // namespace elmo
