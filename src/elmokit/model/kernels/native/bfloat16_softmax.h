// The softmax over some words, its loss and all its gradients, for training: language_head.py is the definition.
// Products are of bfloat16 operands; logits, exponentials, their sums and the loss are float32.
#pragma once
#include "bfloat16.h"

namespace elmo {
namespace VARIANT {

// exp of what is 0 or less, within 2e-7 of the true one; 0 below -87. A NaN stays one. The polynomial is that of expf
// in Cephes (Stephen L. Moshier).
static inline __m512 exp_of(__m512 x) {
  const __mmask16 there = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
  const __m512 n = _mm512_roundscale_ps(x * 1.44269504088896341f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = (x - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return _mm512_maskz_scalef_ps(there, p, n);
}

// Columns are words. C' is C up to a panel's, D' is D up to a panel's: C' / 32 panels for the logits, then D' / 32 for
// the gradient of h.
static void pack_softmax(const Softmax& all, int64_t p) {
  const int64_t D = all.width, columns = up_to(all.words, PANEL), width = up_to(D, PANEL);
  if (p < columns / PANEL) {
    const float* rows[PANEL];
    for (int r = 0; r < PANEL; r++) {
      const int64_t word = p * PANEL + r;
      rows[r] = word < all.words ? all.weight + word * D : nullptr;
      all.start[word] = word < all.words ? all.bias[word] : -INFINITY;
    }
    pack_columns(rows, D, all.by_word + p * PANEL * width / 2, width / 2);
    return;
  }
  p -= columns / PANEL;
  const Array<const float*> rows(all.words);
  for (int64_t k = 0; k < all.words; k++) rows[k] = all.weight + k * D;
  pack_rows<float>(rows, all.words, p * PANEL, D, all.by_width + p * PANEL * columns / 2, columns / 2);
}

// One position's logits -> exponentials, and what they are to be divided by. The loss goes to `loss`.
static float exponentials(const Softmax& all, float* logits, int64_t columns, int64_t target, double* loss) {
  const float own = logits[target];
  if (all.hidden)
    for (int64_t j = 0; j < columns; j += 16)
      _mm512_storeu_ps(logits + j, _mm512_loadu_ps(logits + j) + _mm512_loadu_ps(all.hidden + j));
  logits[target] = own;
  __m512 highest = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
  for (int64_t j = 0; j < columns; j += 16) highest = _mm512_max_ps(highest, _mm512_loadu_ps(logits + j));
  const float top = _mm512_reduce_max_ps(highest);
  for (int64_t j = 0; j < columns; j += 16) {
    const __m512 value = exp_of(_mm512_loadu_ps(logits + j) - top);
    _mm512_storeu_ps(logits + j, value);
    sum += value;
  }
  const float total = _mm512_reduce_add_ps(sum);
  *loss = double(top) - double(own) + log(double(total));
  return total;
}

// Positions [first, last), at most POSITIONS16, of the chunk that begins at `chunk`: their losses, the gradients of
// their h, and the gradients of their logits, packed for softmax_weights.
static void softmax_rows(const Softmax& all, int64_t chunk, int64_t first, int64_t last) {
  const int64_t D = all.width, columns = up_to(all.words, PANEL), width = up_to(D, PANEL), n = last - first;
  const Array<uint16_t> h(n * width);
  const Array<float> logits(n * columns);
  const Pair *a[POSITIONS16], *errors[POSITIONS16];
  const uint16_t* by_position[POSITIONS16];
  float *c[POSITIONS16], *gradients[POSITIONS16];
  for (int64_t r = 0; r < n; r++) {
    to_bfloat16(all.h + (first + r) * D, D, h + r * width, width);
    a[r] = (const Pair*)(h + r * width);
    c[r] = logits + r * columns;
    errors[r] = (const Pair*)c[r];  // in the same memory, half as long
    by_position[r] = (const uint16_t*)c[r];
    gradients[r] = all.h_gradient + (first + r) * D;
  }
  for (int64_t column = 0; column < columns; column += PANEL)
    panel<1>(n, a, all.by_word + column * width / 2, width / 2, c, column, all.start + column);
  for (int64_t r = 0; r < n; r++) {
    const int64_t target = all.targets[first + r];
    const float total = exponentials(all, c[r], columns, target, all.losses + first + r);
    const float own = c[r][target];
    const __m512 share = _mm512_set1_ps(1.0f / total);
    for (int64_t j = 0; j < columns; j += 16) {  // softmax - one-hot: the gradient by the logits
      const __m512 error = _mm512_loadu_ps(c[r] + j) * share;
      _mm256_storeu_si256((__m256i*)(by_position[r] + j), (__m256i)_mm512_cvtneps_pbh(error));
    }
    float its = own / total - 1.0f;
    to_bfloat16(&its, 1, (uint16_t*)by_position[r] + target, 1);
  }
  for (int64_t column = 0; column < width; column += PANEL)
    part_of_panel<1>(n, errors, all.by_width + column * columns / 2, columns / 2, gradients, column, D - column, ZEROS);
  // Sums over positions: pairs of them, for the weights.
  const int64_t pairs = all.chunk / 2, place = (first - chunk) / 2;
  for (int64_t column = 0; column < columns; column += PANEL)
    pack_rows<uint16_t>(by_position, n, column, columns, all.errors + column * pairs + place * PANEL, (n + 1) / 2);
}

// Words of panels [from, to): what the chunk of positions [first, last) adds to their gradients.
static void softmax_weights(const Softmax& all, int64_t first, int64_t last, int64_t from, int64_t to) {
  const int64_t D = all.width, width = up_to(D, PANEL), pairs = (last - first + 1) / 2;
  const int64_t words = smaller(to * PANEL, all.words) - from * PANEL;
  const Array<Pair> h(width * pairs);
  const Array<const float*> rows(last - first);
  const Array<const Pair*> a(words);
  const Array<float*> c(words);
  for (int64_t k = 0; k < last - first; k++) rows[k] = all.h + (first + k) * D;
  pack_rows<float>(rows, last - first, 0, D, h, pairs, width / PANEL);
  for (int64_t r = 0; r < words; r++) {
    a[r] = all.errors + (from + r / PANEL) * PANEL * (all.chunk / 2) + r % PANEL;
    c[r] = all.weight_gradient + (from * PANEL + r) * D;
  }
  for (int64_t column = 0; column < width; column += PANEL)
    part_of_panel<PANEL>(words, a, h + column * pairs, pairs, c, column, D - column, first ? nullptr : ZEROS);
  for (int64_t p = from; p < to; p++) {
    float sums[PANEL];
    sum_panel(all.errors + p * PANEL * (all.chunk / 2), pairs, sums);
    for (int64_t r = 0; r < smaller(PANEL, all.words - p * PANEL); r++) {
      float* sum = all.bias_gradient + p * PANEL + r;
      *sum = first ? *sum + sums[r] : sums[r];
    }
  }
}

}  // namespace VARIANT
}  // namespace elmo
