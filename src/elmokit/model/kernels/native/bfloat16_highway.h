// A highway layer's element by element part, for training: c relu(t) + (1 - c) x and its gradients, in one pass each.
// Its products are bfloat16.h's; here all is float32. Shapes and names as in kernels.h.
#pragma once
#include "bfloat16_softmax.h"

namespace elmo {
namespace VARIANT {

// exp_of of bfloat16_softmax.h takes what is 0 or less: so the sigmoid of -|x| is made, and turned over.
static inline __m512 sigmoid_of(__m512 x) {
  const __m512 small = exp_of(-_mm512_abs_ps(x));
  const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ);
  return _mm512_mask_mov_ps(small, positive, _mm512_set1_ps(1.0f)) / (1.0f + small);
}

// Elements [first, last) of [N, F].
static void highway(const Highway16& all, int64_t first, int64_t last) {
  for (int64_t j = first; j < last; j += 16) {
    const __mmask16 there = first_of(last - j);
    const __m512 x = _mm512_maskz_loadu_ps(there, all.x + j), t = _mm512_maskz_loadu_ps(there, all.transform + j);
    const __m512 c = sigmoid_of(_mm512_maskz_loadu_ps(there, all.carry + j));
    _mm512_mask_storeu_ps(all.carry + j, there, c);
    // A NaN stays one: where it is compared, or is the second of the two, it comes out.
    const __m512 relu = _mm512_max_ps(_mm512_setzero_ps(), t);
    _mm512_mask_storeu_ps(all.out + j, there, c * relu + (1.0f - c) * x);
  }
}

// Columns [from, to), 64 at once: whatever the threads, a bias's sum is in the order of the rows.
static void highway_backward(const Highway16& all, int64_t from, int64_t to) {
  for (int64_t column = from; column < to; column += 64) {
    __m512 transforms[4], carries[4];
    for (int k = 0; k < 4; k++) transforms[k] = carries[k] = _mm512_setzero_ps();
    for (int64_t row = 0; row < all.rows; row++)
#pragma GCC unroll 4
      for (int k = 0; k < 4; k++) {
        const __mmask16 there = first_of(larger(to - column - 16 * k, 0));
        const int64_t j = row * all.width + column + 16 * k;
        const __m512 x = _mm512_maskz_loadu_ps(there, all.x + j), t = _mm512_maskz_loadu_ps(there, all.transform + j);
        const __m512 c = _mm512_maskz_loadu_ps(there, all.carry + j);
        const __m512 dy = _mm512_maskz_loadu_ps(there, all.out_gradient + j);
        const __mmask16 dead = _mm512_cmp_ps_mask(t, _mm512_setzero_ps(), _CMP_LE_OQ);
        const __m512 dt = _mm512_mask_mov_ps(dy * c, dead, _mm512_setzero_ps());
        const __m512 relu = _mm512_max_ps(_mm512_setzero_ps(), t);
        const __m512 dc = dy * (relu - x) * (c * (1.0f - c));
        _mm512_mask_storeu_ps(all.transform + j, there, dt);
        _mm512_mask_storeu_ps(all.carry + j, there, dc);
        if (all.x_gradient) _mm512_mask_storeu_ps(all.x_gradient + j, there, dy * (1.0f - c));
        transforms[k] += dt;
        carries[k] += dc;
      }
    for (int k = 0; k < 4; k++) {
      const __mmask16 there = first_of(larger(to - column - 16 * k, 0));
      _mm512_mask_storeu_ps(all.transform_bias_gradient + column + 16 * k, there, transforms[k]);
      _mm512_mask_storeu_ps(all.carry_bias_gradient + column + 16 * k, there, carries[k]);
    }
  }
}

}  // namespace VARIANT
}  // namespace elmo
