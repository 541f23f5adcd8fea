// Muon's polynomials of symmetric matrices (muon.py), in float32: all that is multiplied commutes, so each product is
// symmetric too, and half of it is computed. M' is M up to a panel's; what is added is zero and stays by itself.
#pragma once
#include "bfloat16.h"

namespace elmo {
namespace VARIANT {

// B's columns as panels [M' / 32, M', 32].
static void pack_square(const float* b, int64_t size, float* panels) {
  for (int64_t k = 0; k < size; k++)
    for (int64_t column = 0; column < size; column += PANEL)
      memcpy(panels + (column * size + k * PANEL), b + k * size + column, sizeof(float) * PANEL);
}

// Eight rows of A times a panel of B, added to C where it is not the first piece of the sum.
static inline void square_tile(const float* a, const float* w, int64_t depth, float* c, int64_t size, bool first) {
  __m512 sum[ROWS][2];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
    for (int j = 0; j < 2; j++) sum[r][j] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * size + 16 * j);
  for (int64_t k = 0; k < depth; k++) {
    const __m512 left = _mm512_loadu_ps(w + k * PANEL), right = _mm512_loadu_ps(w + k * PANEL + 16);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      const __m512 value = _mm512_set1_ps(a[r * size + k]);
      sum[r][0] = _mm512_fmadd_ps(value, left, sum[r][0]);
      sum[r][1] = _mm512_fmadd_ps(value, right, sum[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
    for (int j = 0; j < 2; j++) _mm512_storeu_ps(c + r * size + 16 * j, sum[r][j]);
}

// C = A B, all symmetric [M', M'].
static void square_product(const float* a, const float* b, float* panels, float* c, int64_t size) {
  pack_square(b, size, panels);
  for (int64_t column = 0; column < size; column += PANEL)
    for (int64_t k = 0; k < size; k += DEEP)
      for (int64_t row = 0; row < column + PANEL; row += ROWS)
        square_tile(a + row * size + k, panels + column * size + k * PANEL, smaller(DEEP, size - k),
                    c + row * size + column, size, k == 0);
  for (int64_t row = PANEL; row < size; row++)
    for (int64_t column = 0; column < row / PANEL * PANEL; column++) c[row * size + column] = c[column * size + row];
}

// The product of polynomials P_i(G_i) = a + b G_i + c G_i^2, where G_(i + 1) = G_i P_i(G_i)^2. G [M, M] is symmetric.
static void polynomials(const float* gram, const float* coefficients, int64_t count, int64_t given, float* out) {
  const int64_t size = up_to(given, PANEL), all = size * size;
  const Floats room(6 * all);
  float *g = room, *p = g + all, *root = p + all, *next = root + all, *panels = next + all, *more = panels + all;
  memset(g, 0, sizeof(float) * all);
  for (int64_t row = 0; row < given; row++) memcpy(g + row * size, gram + row * given, sizeof(float) * given);
  for (int64_t i = 0; i < count; i++) {
    const float a = coefficients[3 * i], b = coefficients[3 * i + 1], c = coefficients[3 * i + 2];
    square_product(g, g, panels, p, size);
    for (int64_t j = 0; j < all; j++) p[j] = c * p[j] + b * g[j];
    for (int64_t row = 0; row < size; row++) p[row * size + row] += a;
    if (i) {
      square_product(p, root, panels, next, size);
      float* made = next;
      next = root;
      root = made;
    } else {
      memcpy(root, p, sizeof(float) * all);
    }
    if (i + 1 < count) {
      square_product(g, p, panels, more, size);
      square_product(more, p, panels, g, size);
    }
  }
  for (int64_t row = 0; row < given; row++) memcpy(out + row * given, root + row * size, sizeof(float) * given);
}

}  // namespace VARIANT
}  // namespace elmo
