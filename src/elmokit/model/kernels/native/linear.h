// y = W x + b and a highway layer, without gradients: row by row the same bits, however many rows there are.
#pragma once
#include "matrix.h"
#include "words.h"

namespace elmo {
namespace VARIANT {

constexpr int64_t GROUP = 4;  // panels at a time: few rows are multiplied by several at once

// Rows [first, last) of x, at most BLOCK, as they are multiplied: by weights of format W, as they are,
template <class W>
struct Operands {
  Operands(const float* x, int64_t inputs, int64_t first, int64_t last) : rows(int(last - first)) {
    for (int r = 0; r < rows; r++) a[r] = x + (first + r) * inputs;
  }
  // C[rows, count panels from `column` on] += A times these panels.
  void times(const Linear& layer, int64_t panel_, int64_t count, float* const* c, int64_t column) const {
    const auto* w = (const typename W::Stored*)layer.weight.values;
    for (int64_t p = 0; p < count; p++)
      panel<W>(rows, a, 0, w + (panel_ + p) * PANEL * layer.inputs, layer.inputs, c, column + p * PANEL);
  }
  const int rows;
  const float* a[BLOCK];
};

// or rounded to words.
template <class P>
struct WordOperands {
  WordOperands(const float* x, int64_t inputs, int64_t first, int64_t last) : rounded(last - first, inputs) {
    for (int64_t r = 0; r < last - first; r++) rounded.put(r, x + (first + r) * inputs);
  }
  void times(const Linear& layer, int64_t panel, int64_t count, float* const* c, int64_t column) const {
    word_panels<P>(rounded.size, rounded.all(), layer.weight, rounded.words, panel, count, c, column);
  }
  RoundedRows<P> rounded;
  const Flushed flushed;
};

template <> struct Operands<Bfloat16> : WordOperands<Bfloat16> { using WordOperands::WordOperands; };
template <> struct Operands<Int8> : WordOperands<Int8> { using WordOperands::WordOperands; };

// Rows [first, last), at most BLOCK, times panels [from, to).
template <class W>
static void linear(const Linear& layer, const float* x, float* out, int64_t first, int64_t last, int64_t from,
                   int64_t to) {
  const Operands<W> a(x, layer.inputs, first, last);
  float* c[BLOCK];
  for (int64_t r = 0; r < last - first; r++) {
    c[r] = out + (first + r) * layer.outputs;
    memcpy(c[r] + from * PANEL, layer.bias + from * PANEL, sizeof(float) * (to - from) * PANEL);
  }
  a.times(layer, from, to - from, c, from * PANEL);
}

// out = x + carry (relu(transform) - x), carry after its sigmoid.
template <class W>
static void highway(const Linear& transform, const Linear& carry, const float* x, float* out, int64_t first,
                    int64_t last, int64_t from, int64_t to) {
  float values[2][BLOCK][GROUP * PANEL] __attribute__((aligned(64)));
  const Operands<W> a(x, transform.inputs, first, last);
  float *t[BLOCK], *c[BLOCK];
  const int64_t rows = last - first;
  for (int64_t r = 0; r < rows; r++) {
    t[r] = values[0][r];
    c[r] = values[1][r];
  }
  for (int64_t p = from, now; p < to; p += now) {
    now = smaller(GROUP, to - p);
    for (int64_t r = 0; r < rows; r++) {
      memcpy(t[r], transform.bias + p * PANEL, sizeof(float) * now * PANEL);
      memcpy(c[r], carry.bias + p * PANEL, sizeof(float) * now * PANEL);
    }
    a.times(transform, p, now, t, 0);
    a.times(carry, p, now, c, 0);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < now * PANEL; j += 8) {
        const Eight before = load(x + (first + r) * transform.inputs + p * PANEL + j), value = load(t[r] + j);
        const Eight changed = value < Eight{} ? Eight{} : value;  // a NaN stays one
        store(out + (first + r) * transform.outputs + p * PANEL + j,
              before + sigmoid(load(c[r] + j)) * (changed - before));
      }
  }
}

}  // namespace VARIANT
}  // namespace elmo
