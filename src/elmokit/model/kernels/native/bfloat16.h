// C = A B from bfloat16 operands, summed in float32 by VDPBF16PS, which adds two products at a time: operands are kept
// as pairs of neighbours along the sum. As in matrix.h, an element's sums are in one order, whatever stands beside it.
//
// A is rows of pairs, as they lie in memory where the sum runs along a row; or, as B always is, panels: 32 columns,
// contiguous along the sum. K' is K up to a multiple of two; what is added is zero.
#pragma once
#include "vector.h"

namespace elmo {
namespace VARIANT {

constexpr int64_t DEEP = 128;      // pairs of a panel that stay in the first-level cache: 16 kB
constexpr int ROWS = 8;            // of 32 registers, 16 for sums

static const float ZEROS[PANEL] = {0};

constexpr int64_t ROWS_AHEAD = 16;

// Into the second-level cache, to be read, or written, soon.
template <int WRITTEN, class T>
static inline void ask_for(const T* values, int64_t count) {
  for (int64_t j = 0; j < count; j += 64 / sizeof(T)) __builtin_prefetch(values + j, WRITTEN, 2);
}

// As many of 16 as are left: a mask for loads and stores.
static inline __mmask16 first_of(int64_t left) { return left >= 16 ? 0xffff : __mmask16((1u << left) - 1); }

// Up to 16 values as bfloat16, to the nearest, each in the low half of a word.
static inline __m512i words_of(const float* p, __mmask16 there) {
  return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, p)));
}
static inline __m512i words_of(const uint16_t* p, __mmask16 there) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, p));
}

// count floats -> bfloat16, and zeros after them to fill the room.
static inline void to_bfloat16(const float* from, int64_t count, uint16_t* to, int64_t room) {
  int64_t j = 0;
  for (; j < count; j += 16) {
    const __mmask16 there = first_of(count - j);
    const __m512 values = _mm512_maskz_loadu_ps(there, from + j);
    _mm256_mask_storeu_epi16(to + j, there, (__m256i)_mm512_cvtneps_pbh(values));
  }
  if (count < room) memset(to + count, 0, sizeof(uint16_t) * (room - count));
}

// Up to 32 columns of two rows that follow each other along the sum, null where there are zeros -> their pairs.
template <class T>
static inline void pair_up(const T* low, const T* high, int64_t columns, Pair* out) {
  for (int j = 0; j < PANEL; j += 16) {
    const __mmask16 there = first_of(larger(columns - j, 0));
    const __m512i first = low ? words_of(low + j, there) : _mm512_setzero_si512();
    const __m512i second = high ? words_of(high + j, there) : _mm512_setzero_si512();
    _mm512_storeu_si512(out + j, _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
  }
}

// Columns [column, columns) of a matrix whose rows are summed over, as `panels` panels [panels, pairs, 32]. Rows are
// gone through once, and asked for ahead: they may lie a page apart, where the processor guesses nothing.
template <class T>
static void pack_rows(const T* const* rows, int64_t depth, int64_t column, int64_t columns, Pair* out, int64_t pairs,
                      int64_t panels = 1) {
  for (int64_t k = 0; k < pairs; k++) {
    const T* low = 2 * k < depth ? rows[2 * k] : nullptr;
    const T* high = 2 * k + 1 < depth ? rows[2 * k + 1] : nullptr;
    for (int64_t row = 2 * k + ROWS_AHEAD; row < smaller(2 * k + ROWS_AHEAD + 2, depth); row++)
      if (rows[row]) ask_for<0>(rows[row] + column, smaller(panels * PANEL, columns - column));
    for (int64_t p = 0; p < panels; p++) {
      const int64_t at = column + p * PANEL;
      pair_up<T>(low ? low + at : nullptr, high ? high + at : nullptr, columns - at, out + (p * pairs + k) * PANEL);
    }
  }
}

// 16 x 16 words, row by row -> column by column, `apart` words from one to the next.
static inline void transpose(__m512i* row, Pair* out, int64_t apart) {
  __m512i other[16];
  for (int i = 0; i < 16; i += 2) {
    other[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
    other[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {  // now a lane of row[i + c] has column c of four rows
      row[i + 2 * j] = _mm512_unpacklo_epi64(other[i + j], other[i + j + 2]);
      row[i + 2 * j + 1] = _mm512_unpackhi_epi64(other[i + j], other[i + j + 2]);
    }
  for (int c = 0; c < 4; c++) {
    const __m512i low = _mm512_shuffle_i32x4(row[c], row[c + 4], 0x88);
    const __m512i high = _mm512_shuffle_i32x4(row[c], row[c + 4], 0xdd);
    const __m512i more = _mm512_shuffle_i32x4(row[c + 8], row[c + 12], 0x88);
    const __m512i most = _mm512_shuffle_i32x4(row[c + 8], row[c + 12], 0xdd);
    _mm512_storeu_si512(out + c * apart, _mm512_shuffle_i32x4(low, more, 0x88));
    _mm512_storeu_si512(out + (c + 4) * apart, _mm512_shuffle_i32x4(high, most, 0x88));
    _mm512_storeu_si512(out + (c + 8) * apart, _mm512_shuffle_i32x4(low, more, 0xdd));
    _mm512_storeu_si512(out + (c + 12) * apart, _mm512_shuffle_i32x4(high, most, 0xdd));
  }
}

// A panel of a matrix whose columns are summed over: 32 of its rows, null where there are zeros -> [pairs, 32].
static void pack_columns(const float* const* rows, int64_t depth, Pair* out, int64_t pairs) {
  Pair last[16 * PANEL];
  for (int64_t k = 0; k < pairs; k += 16) {
    const int64_t left = larger(depth - 2 * k, 0), now = smaller(pairs - k, 16);
    const __mmask16 low = first_of(left), high = first_of(larger(left - 16, 0));
    Pair* to = now < 16 ? last : out + k * PANEL;
    for (int half = 0; half < PANEL; half += 16) {
      __m512i words[16];
      for (int r = 0; r < 16; r++) {
        const float* from = rows[half + r] ? rows[half + r] + 2 * k : ZEROS;
        const __mmask16 all = rows[half + r] ? 0xffff : 0;
        words[r] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high & all, from + 16),
                                                _mm512_maskz_loadu_ps(low & all, from));
      }
      transpose(words, to + half, PANEL);
    }
    if (now < 16) memcpy(out + k * PANEL, last, sizeof(Pair) * now * PANEL);
  }
}

// R rows x one panel. STEP: pairs from one of a row to its next, 1 or, in a panel, PANEL. `start`, where given, is a
// panel's row that the sums begin with; else C is added to.
template <int R, int STEP>
static inline void tile(const Pair* const* a, int64_t from, const Pair* w, int64_t pairs, float* const* c,
                        int64_t column, const float* start) {
  __m512 sum[R][2];
  const Pair* row[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    row[r] = a[r] + from * STEP;
    const float* before = start ? start : c[r] + column;
    sum[r][0] = _mm512_loadu_ps(before);
    sum[r][1] = _mm512_loadu_ps(before + 16);
  }
  for (int64_t k = 0; k < pairs; k++) {
    const __m512bh left = (__m512bh)_mm512_loadu_si512(w + k * PANEL);
    const __m512bh right = (__m512bh)_mm512_loadu_si512(w + k * PANEL + 16);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const __m512bh value = (__m512bh)_mm512_set1_epi32(int(row[r][k * STEP]));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], left, value);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], right, value);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    _mm512_storeu_ps(c[r] + column, sum[r][0]);
    _mm512_storeu_ps(c[r] + column + 16, sum[r][1]);
  }
}

template <int R, int STEP>
static inline void few(int64_t rows, const Pair* const* a, int64_t from, const Pair* w, int64_t pairs, float* const* c,
                       int64_t column, const float* start) {
  if (rows == R)
    tile<R, STEP>(a, from, w, pairs, c, column, start);
  else if constexpr (R > 1)
    few<R - 1, STEP>(rows, a, from, w, pairs, c, column, start);
}

// Rows of A times one panel of B -> columns [column, column + 32) of C, which must have room for all of them.
template <int STEP>
static void panel(int64_t rows, const Pair* const* a, const Pair* w, int64_t pairs, float* const* c, int64_t column,
                  const float* start) {
  for (int64_t k = 0; k < pairs; k += DEEP) {
    const int64_t now = smaller(DEEP, pairs - k);
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS)
      tile<ROWS, STEP>(a + r, k, w + k * PANEL, now, c + r, column, k ? nullptr : start);
    few<ROWS, STEP>(rows - r, a + r, k, w + k * PANEL, now, c + r, column, k ? nullptr : start);
  }
}

// The same where C has only so many columns: the others are left alone.
template <int STEP>
static void part_of_panel(int64_t rows, const Pair* const* a, const Pair* w, int64_t pairs, float* const* c,
                          int64_t column, int64_t columns, const float* start) {
  if (columns >= PANEL) return panel<STEP>(rows, a, w, pairs, c, column, start);
  float room[ROWS][PANEL], *held[ROWS];
  for (int64_t r = 0; r < rows; r += ROWS) {
    const int64_t now = smaller(ROWS, rows - r);
    for (int64_t i = 0; i < now; i++) {
      held[i] = room[i];
      if (!start) memcpy(room[i], c[r + i] + column, sizeof(float) * columns);
    }
    panel<STEP>(now, a + r, w, pairs, held, 0, start);
    for (int64_t i = 0; i < now; i++) memcpy(c[r + i] + column, room[i], sizeof(float) * columns);
  }
}

// The sums of a panel's columns [32].
static void sum_panel(const Pair* panel, int64_t pairs, float* sums) {
  for (int j = 0; j < PANEL; j += 16) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t k = 0; k < pairs; k++) {
      const __m512i both = _mm512_loadu_si512(panel + k * PANEL + j);
      const __m512i high = _mm512_and_si512(both, _mm512_set1_epi32(int(0xffff0000)));
      sum += (__m512)_mm512_slli_epi32(both, 16) + (__m512)high;
    }
    _mm512_storeu_ps(sums + j, sum);
  }
}

// Columns [from, to) of B as panels. B [K, N] has rows or columns that are contiguous.
static void pack(const Product& product, int64_t from, int64_t to) {
  const Operand& b = product.b;
  const int64_t depth = b.rows, pairs = (depth + 1) / 2;
  if (b.column == 1) {
    const Array<const float*> rows(depth);
    for (int64_t k = 0; k < depth; k++) rows[k] = b.values + k * b.row;
    pack_rows<float>(rows, depth, from * PANEL, b.columns, product.packed + from * pairs * PANEL, pairs, to - from);
    return;
  }
  const float* rows[PANEL];
  for (int64_t p = from; p < to; p++) {
    for (int r = 0; r < PANEL; r++)
      rows[r] = p * PANEL + r < b.columns ? b.values + (p * PANEL + r) * b.column : nullptr;
    pack_columns(rows, depth, product.packed + p * pairs * PANEL, pairs);
  }
}

// Rows [first, last) of C = A B (+ bias), or of C += A B; where C is symmetric, from their own panel on.
static void multiply(const Product& product, int64_t first, int64_t last) {
  const Operand& a = product.a;
  const int64_t depth = a.columns, pairs = (depth + 1) / 2, columns = product.b.columns;
  const bool across = a.column != 1;  // A's columns are contiguous: it is packed as B is
  const int64_t most = larger(PANEL, CACHED16 / larger(pairs, 1) / PANEL * PANEL);
  const Array<Pair> held(most * pairs);
  const Array<const Pair*> rows(most);
  const Array<const float*> sources(across ? depth : 0);
  const Array<float*> c(most);
  if (across)
    for (int64_t k = 0; k < depth; k++) sources[k] = a.values + k * a.column;
  float start[PANEL];
  for (int64_t row = first; row < last; row += most) {
    const int64_t now = smaller(most, last - row);
    if (across) pack_rows<float>(sources, depth, row, row + now, held, pairs, up_to(now, PANEL) / PANEL);
    for (int64_t r = 0; r < now; r++) {
      c[r] = product.c + (row + r) * product.stride;
      if (!across) to_bfloat16(a.values + (row + r) * a.row, depth, (uint16_t*)(held + r * pairs), 2 * pairs);
      rows[r] = held + (across ? r / PANEL * PANEL * pairs + r % PANEL : r * pairs);
    }
    for (int64_t column = product.symmetric ? row / PANEL * PANEL : 0; column < columns; column += PANEL) {
      const int64_t there = smaller(PANEL, columns - column);
      memset(start, 0, sizeof(start));
      if (product.bias) memcpy(start, product.bias + column, sizeof(float) * there);
      const int64_t those = product.symmetric ? smaller(now, column + PANEL - row) : now;
      const float* begin = product.added ? nullptr : start;
      if (across)
        part_of_panel<PANEL>(those, rows, product.packed + column * pairs, pairs, c, column, there, begin);
      else
        part_of_panel<1>(those, rows, product.packed + column * pairs, pairs, c, column, there, begin);
    }
  }
}

// What `multiply` left out of a symmetric C. The other half is the same to the bit: its sums are of the same products,
// in the same order.
static void mirror(const Product& product) {
  for (int64_t row = PANEL; row < product.a.rows; row++)
    for (int64_t column = 0; column < row / PANEL * PANEL; column++)
      product.c[row * product.stride + column] = product.c[column * product.stride + row];
}

}  // namespace VARIANT
}  // namespace elmo
