// What is done element by element before the highway layers and after the LSTMs.
#pragma once
#include "vector.h"

namespace elmo {
namespace VARIANT {

// Calls one(v, at, count) for eight values at a time; the last of them may be fewer.
template <class One>
static inline void by_eights(int64_t count, One one) {
  int64_t j = 0;
  for (; j + 8 <= count; j += 8) one(j, 8);
  if (j < count) one(j, count - j);
}

static inline Eight load_some(const float* p, int64_t count) {
  if (count == 8) return load(p);
  float some[8] = {0};
  memcpy(some, p, sizeof(float) * count);
  return load(some);
}

static inline void store_some(float* p, Eight v, int64_t count) {
  if (count == 8) return store(p, v);
  float some[8];
  store(some, v);
  memcpy(p, some, sizeof(float) * count);
}

// x = activation(x + bias).
static void activate(float* x, const float* bias, int64_t count, bool by_tanh) {
  by_eights(count, [&](int64_t j, int64_t n) __attribute__((always_inline)) {
    const Eight v = load_some(x + j, n) + load_some(bias + j, n);
    store_some(x + j, by_tanh ? tanh(v) : (v < Eight{} ? Eight{} : v), n);  // a NaN stays one
  });
}

// out = factor (sum over j of weights[j] layers[j]) / divisor.
static void mix(const float* const* layers, const float* weights, int64_t mixed, float factor, float divisor,
                float* out, int64_t count) {
  by_eights(count, [&](int64_t j, int64_t n) __attribute__((always_inline)) {
    Eight sum = load_some(layers[0] + j, n) * weights[0];
    for (int64_t i = 1; i < mixed; i++) sum += load_some(layers[i] + j, n) * weights[i];
    store_some(out + j, factor * sum / divisor, n);
  });
}

}  // namespace VARIANT
}  // namespace elmo
