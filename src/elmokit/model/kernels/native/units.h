// What every LSTM does beside its products: gates to cells, inputs found, outputs put where they belong.
#pragma once
#include "times.h"

namespace elmo {
namespace VARIANT {

// Which product of `a * b + c * d` is fused with the addition is the compiler's choice, at each place another: what has
// to be the same bits wherever it is called from is a function of its own, not a part of its callers.
#define ALIKE __attribute__((noinline))

// Gates of eight units -> their new cells and what is projected. Two divisions in place of five, which took most of
// the time: lstm.h has them plainly, for training.
template <class F>
static ALIKE void eight_units(const float* gates, const float* before, float* cell, float* activated, float clip) {
  const Quotient i = F::sigmoid(load(gates)), f = F::sigmoid(load(gates + 8));
  const Quotient g = F::tanh(load(gates + 16)), o = F::sigmoid(load(gates + 24));
  const Eight under = i.under * g.under;
  const Eight over = f.over * load(before) * under + i.over * g.over * f.under;
  const Eight c = bounded(0.5f * over / (under * f.under), clip);
  const Quotient t = F::tanh(c);
  store(cell, c);
  store(activated, 0.5f * (o.over * t.over) / (o.under * t.under));
}

// Groups of `group` panels or units in order at even steps, from the last to the first at odd ones: what a step used last,
// and the second-level cache still has, is what the next one begins with.
static inline int64_t there_and_back(int64_t t, int64_t at, int64_t group, int64_t count) {
  return t % 2 ? (count - 1) / group * group - at : at;
}

static inline const float* input_at(const Pass& pass, int64_t row, int64_t t) {
  const int64_t token = token_at(pass, row, t);
  if (pass.places) return pass.x + pass.places[row * pass.steps + token] * pass.x_token;
  return pass.x + row * pass.x_row + token * pass.x_token;
}

// The layer's output at a step: h, or h + x where it skips.
static inline void put_out(const Pass& pass, int64_t row, int64_t t, const float* h, int64_t width) {
  float* out = pass.out + row * pass.out_row + token_at(pass, row, t) * pass.out_token;
  if (pass.skip) {
    const float* in = input_at(pass, row, t);
    for (int64_t j = 0; j < width; j++) out[j] = h[j] + in[j];
  } else {
    memcpy(out, h, sizeof(float) * width);
  }
}

}  // namespace VARIANT
}  // namespace elmo
