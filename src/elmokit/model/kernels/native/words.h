// C += A W where both are kept in fewer bits: a word of 32 bits holds two bfloat16 or four int8, neighbours along the
// sum. W is packed as in matrix.h, words in place of floats; A is rounded row by row, just before it is used.
//
// bfloat16: as VDPBF16PS does it. Products are exact, the second of a pair is added before the first, each addition is
// rounded once, and what is too small to be normal is zero (Flushed). int8: sums of integers, so exact in any order.
// The processor's own instruction, or what stands for it elsewhere: the bits are the same.
#pragma once
#include "vector.h"

namespace elmo {
namespace VARIANT {

typedef int32_t Ints __attribute__((vector_size(32)));
typedef uint32_t WideBits __attribute__((vector_size(4 * LANES)));
typedef uint32_t LooseBits __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t LooseInts __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline WideBits load_bits(const uint32_t* p) { return *(const LooseBits*)p; }

// a b + c, rounded once where the processor can: what has to be the same bits is not left to the compiler.
static inline Wide fused(Wide a, Wide b, Wide c) {
#if defined(ELMO_F16C) && LANES == 16
  return (Wide)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(ELMO_F16C) && LANES == 8
  return (Wide)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__) && LANES == 4
  return (Wide)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

// While it lives, numbers too small to be normal are zero, as VDPBF16PS has them whatever is set.
class Flushed {
 public:
#if defined(ELMO_X86)
  Flushed() : before(_mm_getcsr()) { _mm_setcsr(before | 0x8040); }
  ~Flushed() { _mm_setcsr(before); }

 private:
  const unsigned before;
#elif defined(__aarch64__)
  Flushed() {
    asm volatile("mrs %0, fpcr" : "=r"(before));
    asm volatile("msr fpcr, %0" ::"r"(before | 1 << 24));
  }
  ~Flushed() { asm volatile("msr fpcr, %0" ::"r"(before)); }

 private:
  uint64_t before;
#endif
};

static inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// To the nearest bfloat16, a tie to the even one, as a float's upper half; a NaN stays one, and is quiet.
static inline uint32_t rounded_bits(float value) {
  const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (bits | 0x400000) & 0xffff0000;
  if (magnitude < 0x800000) return bits & 0x80000000;
  return (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
}

struct Bfloat16 {
  static constexpr int PER_WORD = 2;
#ifdef ELMO_VDPBF16PS
  typedef uint32_t Value;  // a pair
  static constexpr int VALUES = 1;
#else
  typedef float Value;  // rounded
  static constexpr int VALUES = 2;
#endif
  typedef Wide Sum;

  // count floats, and zeros to fill the words.
  static inline void encode(const float* from, int64_t count, Value* to, int64_t words, float*) {
#ifdef ELMO_VDPBF16PS
    for (int64_t j = 0; j < words; j += 8) {
      const int64_t left = count - 2 * j;
      const __mmask16 there = left >= 16 ? 0xffff : left <= 0 ? 0 : __mmask16((1u << left) - 1);
      const __m256i pairs = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, from + 2 * j));
      const int64_t room = words - j;
      _mm256_mask_storeu_epi32(to + j, room >= 8 ? 0xff : __mmask8((1u << room) - 1), pairs);
    }
#else
    for (int64_t j = 0; j < count; j++) {
      const uint32_t bits = rounded_bits(from[j]);
      memcpy(to + j, &bits, sizeof(bits));
    }
    for (int64_t j = count; j < 2 * words; j++) to[j] = 0;
#endif
  }

  // C's sum before, and C after it, of W's columns from `column` on.
  static inline Sum begin(const float* c, const Packed&, int64_t) { return load_wide(c); }
  static inline void end(Sum sum, float* c, float, const Packed&, int64_t) { store_wide(c, sum); }

  // The weights of a word, as they are used by all rows; and a row's value.
#ifdef ELMO_VDPBF16PS
  struct Weights {
    __m512bh both;
    explicit Weights(const uint32_t* w) : both((__m512bh)_mm512_loadu_si512(w)) {}
  };
  struct Operand {
    __m512bh both;
    explicit Operand(const Value* a) : both((__m512bh)_mm512_set1_epi32(int(*a))) {}
  };
  static inline Sum add(Sum sum, const Weights& w, const Operand& a) {
    return (Sum)_mm512_dpbf16_ps((__m512)sum, w.both, a.both);
  }
#else
  struct Weights {
    Wide first, second;
    explicit Weights(const uint32_t* w) {
      const WideBits both = load_bits(w);
      first = (Wide)(both << 16);
      second = (Wide)(both & 0xffff0000);
    }
  };
  struct Operand {
    Wide first, second;
    explicit Operand(const Value* a) : first(a[0] - Wide{}), second(a[1] - Wide{}) {}
  };
  static inline Sum add(Sum sum, const Weights& w, const Operand& a) {
    return fused(a.first, w.first, fused(a.second, w.second, sum));
  }
#endif
};

struct Int8 {
  static constexpr int PER_WORD = 4, VALUES = 1;
  typedef uint32_t Value;  // four bytes
  typedef WideInts Sum;
#ifdef ELMO_VPDPBUSD
  static constexpr int32_t ZERO = 128;  // bytes of A are from 0 to 255, and the sums begin with what that adds
#else
  static constexpr int32_t ZERO = 0;
#endif
  static constexpr float LEAST = 1e-30f;  // where the largest is no more than this, all are zero

  // Each row by its own largest value. A row with a NaN or an infinity has no scale but NaN, and so come its products.
  static inline void encode(const float* from, int64_t count, Value* to, int64_t words, float* scale) {
    uint32_t most = 0;
    int64_t j = 0;
    Ints largest = {};
    for (; j + 8 <= count; j += 8) {
      const Ints magnitude = (Ints)load(from + j) & 0x7fffffff;
      largest = magnitude > largest ? magnitude : largest;
    }
    for (int i = 0; i < 8; i++) most = uint32_t(largest[i]) > most ? uint32_t(largest[i]) : most;
    for (; j < count; j++) most = (bits_of(from[j]) & 0x7fffffff) > most ? bits_of(from[j]) & 0x7fffffff : most;
    float magnitude;
    memcpy(&magnitude, &most, sizeof(most));
    const bool finite = most < 0x7f800000, any = finite && magnitude > LEAST;
    *scale = !finite ? NAN : any ? magnitude / 127 : 0.0f;
    const float inverse = any ? 127 / magnitude : 0.0f;
    int8_t* bytes = (int8_t*)to;
    j = 0;
    if (any) {
#ifdef ELMO_VPDPBUSD
      for (; j + 16 <= count; j += 16) {
        const __m512i whole = _mm512_cvtps_epi32(_mm512_loadu_ps(from + j) * _mm512_set1_ps(inverse));
        _mm_storeu_si128((__m128i*)(bytes + j), _mm512_cvtepi32_epi8(_mm512_add_epi32(whole, _mm512_set1_epi32(ZERO))));
      }
#elif defined(ELMO_F16C)
      for (; j + 8 <= count; j += 8) {
        const __m256i whole = _mm256_cvtps_epi32((__m256)load(from + j) * _mm256_set1_ps(inverse));
        const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
        _mm_storel_epi64((__m128i*)(bytes + j), _mm_packs_epi16(half, half));
      }
#endif
      for (; j < count; j++) bytes[j] = int8_t(int32_t(__builtin_rintf(from[j] * inverse)) + ZERO);
    }
    memset(bytes + j, ZERO, 4 * words - j);
  }

  static inline Sum begin(const float*, const Packed& w, int64_t column) {
    if constexpr (ZERO != 0) return *(const LooseInts*)(w.offset + column);
    return Sum{};
  }
  static inline void end(Sum sum, float* c, float row, const Packed& w, int64_t column) {
    store_wide(c, fused(__builtin_convertvector(sum, Wide), row * load_wide(w.scale + column), load_wide(c)));
  }

#if defined(ELMO_VPDPBUSD)
  struct Weights {
    __m512i bytes;
    explicit Weights(const uint32_t* w) : bytes(_mm512_loadu_si512(w)) {}
  };
  struct Operand {
    __m512i bytes;
    explicit Operand(const Value* a) : bytes(_mm512_set1_epi32(int(*a))) {}
  };
  static inline Sum add(Sum sum, const Weights& w, const Operand& a) {
    return (Sum)_mm512_dpbusd_epi32((__m512i)sum, a.bytes, w.bytes);
  }
#elif defined(ELMO_F16C) && LANES == 8
  // VPMADDUBSW takes bytes without a sign from the left: it is moved to the right. No pair reaches 2 ** 15.
  struct Weights {
    __m256i bytes;
    explicit Weights(const uint32_t* w) : bytes(_mm256_loadu_si256((const __m256i*)w)) {}
  };
  struct Operand {
    __m256i bytes, magnitudes;
    explicit Operand(const Value* a) : bytes(_mm256_set1_epi32(int(*a))), magnitudes(_mm256_abs_epi8(bytes)) {}
  };
  static inline Sum add(Sum sum, const Weights& w, const Operand& a) {
    const __m256i pairs = _mm256_maddubs_epi16(a.magnitudes, _mm256_sign_epi8(w.bytes, a.bytes));
    return (Sum)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
#else
  struct Weights {
    WideInts each[4];
    explicit Weights(const uint32_t* w) {
      const WideInts all = (WideInts)load_bits(w);
      for (int i = 0; i < 4; i++) each[i] = all << (24 - 8 * i) >> 24;
    }
  };
  struct Operand {
    int32_t each[4];
    explicit Operand(const Value* a) {
      for (int i = 0; i < 4; i++) each[i] = ((const int8_t*)a)[i];
    }
  };
  static inline Sum add(Sum sum, const Weights& w, const Operand& a) {
    for (int i = 0; i < 4; i++) sum += w.each[i] * a.each[i];
    return sum;
  }
#endif
};

static inline int64_t words_for(int64_t count, int per_word) { return (count + per_word - 1) / per_word; }

// Rows of A, rounded, and each one's scale.
template <class P>
struct Rounded {
  const typename P::Value* const* rows;
  const float* scales;
  Rounded from(int64_t row) const { return {rows + row, scales + row}; }
};

// R rows x N panels from `panel` on; C has the first of them at `column`. While they are multiplied, FETCH asks for what
// lies `ahead` of each weight, in bytes, so that it is in the second-level cache when its turn comes.
template <class P, int R, int N, bool FETCH>
static inline void word_tile(const Rounded<P>& a, const Packed& w, int64_t words, int64_t panel, float* const* c,
                             int64_t column, int64_t ahead) {
  constexpr int ACROSS = N * WIDES;
  typename P::Sum sum[R][ACROSS];
  const uint32_t* weights = (const uint32_t*)w.values + panel * words * PANEL;
  const typename P::Value* row[R];
  const int64_t at = panel * PANEL;
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    row[r] = a.rows[r];
#pragma GCC unroll 16
    for (int j = 0; j < ACROSS; j++) sum[r][j] = P::begin(c[r] + column + j * LANES, w, at + j * LANES);
  }
  for (int64_t k = 0; k < words; k++) {
    auto add = [&](int p) __attribute__((always_inline)) {
      const uint32_t* here = weights + (p * words + k) * PANEL;
      if (FETCH) {
        const char* next = (const char*)(uintptr_t(here) + ahead);  // anywhere: nothing is read there
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(next + 64, 0, 2);
      }
#pragma GCC unroll 16
      for (int j = 0; j < WIDES; j++) {
        const typename P::Weights weight(here + j * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
          sum[r][p * WIDES + j] = P::add(sum[r][p * WIDES + j], weight, typename P::Operand(row[r] + k * P::VALUES));
      }
    };
#pragma GCC unroll 4
    for (int p = 0; p < N; p++) add(p);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int j = 0; j < ACROSS; j++) P::end(sum[r][j], c[r] + column + j * LANES, a.scales[r], w, at + j * LANES);
}

constexpr int WORD_ROWS = LANES == 16 ? 8 : LANES == 8 ? 2 : 1;
constexpr int64_t LONG = 65536;  // bytes: panels that are longer are asked for AHEAD_WITHIN them
constexpr int64_t AHEAD_WITHIN = 4096;

// Of the rows that are left, how many to take now: tiles of about the same size, for one row takes as long as two.
static inline int64_t rows_now(int64_t left) {
  const int64_t tiles = (left + WORD_ROWS - 1) / WORD_ROWS;
  return tiles ? (left + tiles - 1) / tiles : 0;
}

template <class P, int R, bool FETCH>
static inline void word_rows(int64_t rows, const Rounded<P>& a, const Packed& w, int64_t words, int64_t panel,
                             int64_t panels, float* const* c, int64_t column, int64_t next) {
  if (rows == R) {
    // As many sums at once as the processor can add: for few rows, of several panels.
    constexpr int N = LANES < 16 || R > 4 ? 1 : R > 2 ? 2 : 4;
    const int64_t bytes = words * PANEL * sizeof(uint32_t);
    const int64_t ahead = R <= 4 && N * bytes > LONG ? AHEAD_WITHIN : next * (panels > N ? N : panels) * bytes;
    int64_t p = 0;
    for (; p + N <= panels; p += N) word_tile<P, R, N, FETCH>(a, w, words, panel + p, c, column + p * PANEL, ahead);
    for (; p < panels; p++) word_tile<P, R, 1, FETCH>(a, w, words, panel + p, c, column + p * PANEL, ahead);
  } else if constexpr (R > 1) {
    word_rows<P, R - 1, FETCH>(rows, a, w, words, panel, panels, c, column, next);
  }
}

// All rows of A times panels [panel, panel + panels): a panel at a time where it is used again and again. `next`: the
// panels that come after these lie behind them (1) or before them (-1).
template <class P>
static inline void word_panels(int64_t rows, const Rounded<P>& a, const Packed& w, int64_t words, int64_t panel,
                               int64_t panels, float* const* c, int64_t column, int64_t next = 1) {
  if (rows <= WORD_ROWS) {
    word_rows<P, WORD_ROWS, true>(rows, a, w, words, panel, panels, c, column, next);
    return;
  }
  for (int64_t p = 0; p < panels; p++)
    for (int64_t r = 0, now; r < rows; r += now) {
      now = rows_now(rows - r);
      if (r == 0)
        word_rows<P, WORD_ROWS, true>(now, a, w, words, panel + p, 1, c, column + p * PANEL, 1);
      else
        word_rows<P, WORD_ROWS, false>(now, a.from(r), w, words, panel + p, 1, c + r, column + p * PANEL, 1);
    }
}

// Rows of A that are rounded as they come, with room for them.
template <class P>
struct RoundedRows {
  RoundedRows(int64_t rows, int64_t count)
      : size(rows), count(count), words(words_for(count, P::PER_WORD)), memory(rows * words * P::VALUES), scales(rows), rows(rows) {
    for (int64_t r = 0; r < rows; r++) this->rows[r] = memory + r * words * P::VALUES;
  }
  void put(int64_t row, const float* values) {
    P::encode(values, count, memory + row * words * P::VALUES, words, scales + row);
  }
  Rounded<P> all() const { return {rows, scales}; }

  const int64_t size, count, words;
  const Array<typename P::Value> memory;
  const Array<float> scales;
  const Array<const typename P::Value*> rows;
};

}  // namespace VARIANT
}  // namespace elmo
