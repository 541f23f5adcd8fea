// y = W x + b and a highway layer, without gradients: row by row the same bits, however many rows there are.
#pragma once
#include "matrix.h"

namespace elmo {
namespace VARIANT {

// Rows [first, last), at most BLOCK, times panels [from, to).
static void linear(const Linear& layer, const float* x, float* out, int64_t first, int64_t last, int64_t from,
                   int64_t to) {
  const float* a[BLOCK];
  float* c[BLOCK];
  const int rows = int(last - first);
  for (int r = 0; r < rows; r++) {
    a[r] = x + (first + r) * layer.inputs;
    c[r] = out + (first + r) * layer.outputs;
    memcpy(c[r] + from * PANEL, layer.bias + from * PANEL, sizeof(float) * (to - from) * PANEL);
  }
  for (int64_t p = from; p < to; p++)
    panel<Float32>(rows, a, 0, (const float*)layer.weight.values + p * PANEL * layer.inputs, layer.inputs, c, p * PANEL);
}

// out = x + carry (relu(transform) - x), carry after its sigmoid.
static void highway(const Linear& transform, const Linear& carry, const float* x, float* out, int64_t first,
                    int64_t last, int64_t from, int64_t to) {
  float values[2][BLOCK][PANEL] __attribute__((aligned(64)));
  const float* a[BLOCK];
  float *t[BLOCK], *c[BLOCK];
  const int rows = int(last - first);
  for (int r = 0; r < rows; r++) {
    a[r] = x + (first + r) * transform.inputs;
    t[r] = values[0][r];
    c[r] = values[1][r];
  }
  for (int64_t p = from; p < to; p++) {
    for (int r = 0; r < rows; r++) {
      memcpy(t[r], transform.bias + p * PANEL, sizeof(float) * PANEL);
      memcpy(c[r], carry.bias + p * PANEL, sizeof(float) * PANEL);
    }
    panel<Float32>(rows, a, 0, (const float*)transform.weight.values + p * PANEL * transform.inputs, transform.inputs, t, 0);
    panel<Float32>(rows, a, 0, (const float*)carry.weight.values + p * PANEL * carry.inputs, carry.inputs, c, 0);
    for (int r = 0; r < rows; r++)
      for (int j = 0; j < PANEL; j += 8) {
        const Eight before = load(a[r] + p * PANEL + j), value = load(t[r] + j);
        const Eight changed = value < Eight{} ? Eight{} : value;  // a NaN stays one
        store(out + (first + r) * transform.outputs + p * PANEL + j,
              before + sigmoid(load(c[r] + j)) * (changed - before));
      }
  }
}

}  // namespace VARIANT
}  // namespace elmo
