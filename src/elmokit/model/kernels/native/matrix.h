// C += A W for a few rows of A at a time, W packed: panels of 32 columns, contiguous along the sum.
//
// However many rows there are, the products of an element are added one by one in the same order: a row's result
// does not depend, not in a bit, on the rows beside it. Each row is a pointer of its own, so nothing is gathered.
#pragma once
#include "vector.h"

namespace elmo {
namespace VARIANT {

constexpr int AHEAD = 2048;  // bytes that a row alone asks for before it needs them
constexpr int DEPTH = 128;  // of a panel that stays in the first-level cache: 16 kB

// R rows x one panel, `depth` products each. Every four of them, FETCH lines of what comes next are asked for.
template <int R, class W, int FETCH>
static inline void tile(const float* const* a, int64_t from, const typename W::Stored* w, int depth, float* const* c,
                        int64_t column, const char* next) {
  Wide sum[R][WIDES];
  const float* row[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    row[r] = a[r] + from;
#pragma GCC unroll 16
    for (int j = 0; j < WIDES; j++) sum[r][j] = load_wide(c[r] + column + j * LANES);
  }
  auto add = [&](int k) __attribute__((always_inline)) {
    Wide value[R];  // all rows' first, then one weight after the other: so the registers suffice
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) value[r] = row[r][k] - Wide{};  // "- 0" changes nothing and is left out; "+ 0" would not be
#pragma GCC unroll 16
    for (int j = 0; j < WIDES; j++) {
      const Wide weight = W::get(w + k * PANEL + j * LANES);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) sum[r][j] += value[r] * weight;
    }
  };
  int k = 0;
  for (; k + 4 <= depth; k += 4) {
#pragma GCC unroll 4
    for (int line = 0; line < FETCH; line++) __builtin_prefetch(next + 64 * line, 0, 2);
    next += 64 * FETCH;
    add(k);
    add(k + 1);
    add(k + 2);
    add(k + 3);
  }
  for (; k < depth; k++) add(k);
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int j = 0; j < WIDES; j++) store_wide(c[r] + column + j * LANES, sum[r][j]);
}

template <int R, class W, int FETCH>
static inline void few(int rows, const float* const* a, int64_t from, const typename W::Stored* w, int depth,
                       float* const* c, int64_t column, const char* next) {
  if (rows == R)
    tile<R, W, FETCH>(a, from, w, depth, c, column, next);
  else if constexpr (R > 1)
    few<R - 1, W, FETCH>(rows, a, from, w, depth, c, column, next);
}

template <class W, int FETCH>
static inline void rows_of_panel(int rows, const float* const* a, int64_t from, const typename W::Stored* w, int depth,
                                 float* const* c, int64_t column, const char* next) {
  int r = 0;
  for (; rows - r >= ROWS && (ROWS == 1 || rows - r != ROWS + 1); r += ROWS) {
    tile<ROWS, W, FETCH>(a + r, from, w, depth, c + r, column, next);
    next += depth / 4 * 64 * FETCH;
  }
  // One row alone takes as long as two: the last four are better two and two than three and one.
  constexpr int HALF = (ROWS + 1) / 2;
  if (rows - r == ROWS + 1 && ROWS > 1) {
    tile<HALF, W, FETCH>(a + r, from, w, depth, c + r, column, next);
    r += HALF;
  }
  if (r < rows) few<ROWS, W, FETCH>(rows - r, a + r, from, w, depth, c + r, column, next);
}

// rows of A at columns [from, from + depth) times one packed piece -> columns [column, column + PANEL) of C.
template <class W>
static inline void panel(int rows, const float* const* a, int64_t from, const typename W::Stored* w, int64_t depth,
                         float* const* c, int64_t column) {
  float wide[DEPTH * PANEL] __attribute__((aligned(64)));  // the piece as floats, where it is stored smaller
  for (int64_t k = 0; k < depth; k += DEPTH) {
    const int now = depth - k < DEPTH ? int(depth - k) : DEPTH;
    const typename W::Stored* piece = w + k * PANEL;
    const char* next = (const char*)(piece + (int64_t)now * PANEL);
    if (rows <= ROWS) {
      // So few rows wait for the weights: fetch as many as are used.
      few<ROWS, W, sizeof(typename W::Stored) * 2>(rows, a, from + k, piece, now, c, column, (const char*)piece + AHEAD);
      continue;
    }
    const float* floats = wide;
    if constexpr (sizeof(typename W::Stored) == sizeof(float))
      floats = (const float*)piece;
    else
      for (int i = 0; i < now * PANEL; i += LANES) store_wide(wide + i, W::get(piece + i));
    if (rows <= 3 * ROWS)
      rows_of_panel<Float32, 4>(rows, a, from + k, floats, now, c, column, next);
    else if (rows < 4 * ROWS)
      rows_of_panel<Float32, 2>(rows, a, from + k, floats, now, c, column, next);
    else
      rows_of_panel<Float32, 1>(rows, a, from + k, floats, now, c, column, next);
  }
}

// One row times two panels: as many sums at once as the processor can add, each in the order of `tile`.
template <class W>
static inline void row_of_two(const float* a, const typename W::Stored* w, const typename W::Stored* other, int64_t depth,
                              float* c, float* d) {
  Wide sum[2][WIDES];
#pragma GCC unroll 16
  for (int j = 0; j < WIDES; j++) {
    sum[0][j] = load_wide(c + j * LANES);
    sum[1][j] = load_wide(d + j * LANES);
  }
  for (int64_t k = 0; k < depth; k++) {
    const Wide value = a[k] - Wide{};
#pragma GCC unroll 4
    for (int line = 0; line < int(sizeof(typename W::Stored) * PANEL + 63) / 64; line++) {
      __builtin_prefetch((const char*)(w + k * PANEL) + AHEAD + 64 * line, 0, 2);
      __builtin_prefetch((const char*)(other + k * PANEL) + AHEAD + 64 * line, 0, 2);
    }
#pragma GCC unroll 16
    for (int j = 0; j < WIDES; j++) {
      sum[0][j] += value * W::get(w + k * PANEL + j * LANES);
      sum[1][j] += value * W::get(other + k * PANEL + j * LANES);
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < WIDES; j++) {
    store_wide(c + j * LANES, sum[0][j]);
    store_wide(d + j * LANES, sum[1][j]);
  }
}

// Two panels that follow each other, `apart` weights from one to the next.
template <class W>
static inline void two_panels(int rows, const float* const* a, int64_t from, const typename W::Stored* w, int64_t apart,
                              int64_t depth, float* const* c, int64_t column) {
  if (rows == 1 && WIDES <= 4) {
    row_of_two<W>(a[0] + from, w, w + apart, depth, c[0] + column, c[0] + column + PANEL);
  } else {
    panel<W>(rows, a, from, w, depth, c, column);
    panel<W>(rows, a, from, w + apart, depth, c, column + PANEL);
  }
}

}  // namespace VARIANT
}  // namespace elmo
