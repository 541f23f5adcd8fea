// One layer of one direction over rows [first, last) of a batch, the whole time loop, and back through it.
// lstm.py is the definition; this is the same sums in another order.
#pragma once
#include "matrix.h"
#include "times.h"

namespace elmo {
namespace VARIANT {

constexpr int64_t CHUNK = 256;  // rows of gates that are made from the inputs in one go

// C[rows, columns] += A W, W in panels along its columns.
template <class W>
static void product(int rows, const float* const* a, const void* weights, int64_t depth, int64_t columns,
                    float* const* c) {
  const auto* w = (const typename W::Kept*)weights;
  for (int64_t column = 0; column < columns; column += PANEL)
    panel<W>(rows, a, 0, w + column * depth, depth, c, column);
}

// The same, W in blocks along the sum and panels within: for long sums to few columns.
template <class W>
static void long_product(int rows, const float* const* a, const void* weights, int64_t depth, int64_t block,
                         int64_t columns, float* const* c) {
  const auto* w = (const typename W::Kept*)weights;
  for (int64_t k = 0; k < depth; k += block) {
    int64_t column = 0;
    for (; column + 2 * PANEL <= columns; column += 2 * PANEL)
      two_panels<W>(rows, a, k, w + k * columns + column * block, PANEL * block, block, c, column);
    if (column < columns) panel<W>(rows, a, k, w + k * columns + column * block, block, c, column);
  }
}

static inline void scale_and_add(float* row, const float* scale, const float* add, int64_t count) {
  for (int64_t j = 0; j < count; j += 8) {
    Eight v = load(row + j) * load(scale + j);
    store(row + j, add ? v + load(add + j) : v);
  }
}

// Gates of eight units -> their new cells and what is projected.
template <bool KEEP>
static inline void eight_units(float* gates, const float* before, float* cell, float* activated, float clip) {
  const Eight i = sigmoid(load(gates)), f = sigmoid(load(gates + 8));
  const Eight g = tanh(load(gates + 16)), o = sigmoid(load(gates + 24));
  const Eight c = bounded(f * load(before) + i * g, clip);
  store(cell, c);
  store(activated, o * tanh(c));
  if (KEEP) {
    store(gates, i);
    store(gates + 8, f);
    store(gates + 16, g);
    store(gates + 24, o);
  }
}

template <class W, bool KEEP>
static void run_forward(const Layer& layer, const Pass& pass, int64_t first, int64_t last) {
  constexpr bool SCALED = sizeof(typename W::Kept) == 1;
  const Times times(pass, first, last);
  const int64_t steps = times.steps, width4 = 4 * layer.cells, H = layer.cells, P = layer.width;
  const int64_t padded = (P + PANEL - 1) / PANEL * PANEL;
  if (!steps) return;
  const int64_t most = times.rows[0], chunk = larger(CHUNK, most);
  const Floats made(KEEP ? 0 : chunk * width4), acted(KEEP ? 0 : most * H), h(most * padded), zeros(larger(H, P));
  const Floats recurrent(SCALED ? most * 2 * PANEL : 0);
  memset(zeros, 0, sizeof(float) * larger(H, P));
  memset(h, 0, sizeof(float) * most * padded);
  for (int64_t r = 0; r < most; r++) memcpy(h + r * padded, pass.hidden + (first + r) * P, sizeof(float) * P);
  const Array<const float*> x(chunk), from(most), before(most), acts(most);
  const Rows gates(chunk), cells(most), projected(most), sums(most);
  for (int64_t r = 0; r < most; r++) {
    projected[r] = h + r * padded;
    sums[r] = recurrent + r * 2 * PANEL;
  }
  for (int64_t t = 0; t < steps;) {
    // The inputs' share of the gates, for as many steps as the chunk holds.
    int64_t until = t, rows = 0;
    while (until < steps && (rows == 0 || rows + times.rows[until] <= chunk)) {
      for (int64_t r = 0; r < times.rows[until]; r++, rows++) {
        x[rows] = pass.x + (first + r) * pass.x_row + token_at(pass, first + r, until) * pass.x_token;
        gates[rows] = KEEP ? pass.gates + (times.offsets[until] + r) * width4 : made + rows * width4;
        if (SCALED)
          memset(gates[rows], 0, sizeof(float) * width4);
        else
          memcpy(gates[rows], layer.bias, sizeof(float) * width4);
      }
      until++;
    }
    product<W>(int(rows), x, layer.input, layer.inputs, width4, gates);
    if (SCALED)
      for (int64_t r = 0; r < rows; r++) scale_and_add(gates[r], layer.input_scale, layer.bias, width4);

    for (float* const* now = gates; t < until; now += times.rows[t], t++) {
      const int n = times.rows[t];
      for (int r = 0; r < n; r++) {
        const bool begins = pass.begins && pass.begins[(first + r) * pass.steps + t];
        from[r] = begins ? (float*)zeros : projected[r];
        float* carried = pass.cell + (first + r) * H;
        before[r] = begins ? (float*)zeros : carried;
        cells[r] = carried;
        acts[r] = KEEP ? pass.activated + (times.offsets[t] + r) * H : acted + r * H;
      }
      const auto* w = (const typename W::Kept*)layer.hidden;
      for (int64_t unit = 0, units; unit < H; unit += units) {
        const int64_t column = 4 * unit;
        const bool pair = unit + 2 * UNITS <= H;
        units = pair ? 2 * UNITS : UNITS;
        float* const* into = now;
        int64_t at = column;
        if (SCALED) {
          memset(recurrent, 0, sizeof(float) * n * 2 * PANEL);
          into = sums;
          at = 0;
        }
        if (pair)
          two_panels<W>(n, from, 0, w + column * P, PANEL * P, P, into, at);
        else
          panel<W>(n, from, 0, w + column * P, P, into, at);
        if (SCALED)
          for (int r = 0; r < n; r++)
            for (int64_t j = 0; j < 4 * units; j += 8) {
              float* gate = now[r] + column + j;
              store(gate, load(gate) + load(sums[r] + j) * load(layer.hidden_scale + column + j));
            }
        for (int r = 0; r < n; r++)
          for (int64_t u = unit; u < unit + units; u += UNITS)
            eight_units<KEEP>(now[r] + 4 * u, before[r] + u, cells[r] + u, (float*)acts[r] + u, layer.cell_clip);
      }
      if (KEEP)
        for (int r = 0; r < n; r++) memcpy(pass.cells + (times.offsets[t] + r) * H, cells[r], sizeof(float) * H);
      memset(h, 0, sizeof(float) * n * padded);
      long_product<W>(n, acts, layer.projection, H, layer.block, padded, projected);
      for (int r = 0; r < n; r++) {
        if (SCALED) scale_and_add(projected[r], layer.projection_scale, nullptr, padded);
        for (int64_t j = 0; j < padded; j += 8)
          store(projected[r] + j, bounded(load(projected[r] + j), layer.projection_clip));
        if (KEEP) memcpy(pass.projected + (times.offsets[t] + r) * P, projected[r], sizeof(float) * P);
        const int64_t row = first + r, token = token_at(pass, row, t);
        float* out = pass.out + row * pass.out_row + token * pass.out_token;
        const float* in = pass.x + row * pass.x_row + token * pass.x_token;
        if (pass.skip)
          for (int64_t j = 0; j < P; j++) out[j] = projected[r][j] + in[j];
        else
          memcpy(out, projected[r], sizeof(float) * P);
      }
    }
  }
  for (int64_t r = 0; r < most; r++) memcpy(pass.hidden + (first + r) * P, projected[r], sizeof(float) * P);
}

static void forward(const Layer& layer, const Pass& pass, int64_t first, int64_t last) {
  if (layer.kind == FLOAT16)
    run_forward<Float16, false>(layer, pass, first, last);
  else if (layer.kind == INT8)
    run_forward<Int8, false>(layer, pass, first, last);
  else if (pass.gates)
    run_forward<Float32, true>(layer, pass, first, last);
  else
    run_forward<Float32, false>(layer, pass, first, last);
}

static inline void eight_units_back(float* gates, const float* cell, const float* before, const float* activated_gradient,
                                    float* cell_gradient, float clip) {
  const Eight i = load(gates), f = load(gates + 8), g = load(gates + 16), o = load(gates + 24);
  const Eight c = load(cell), da = load(activated_gradient), th = tanh(c);
  const Eight dc = within(load(cell_gradient) + da * o * (1.0f - th * th), c, clip);
  store(gates, dc * g * i * (1.0f - i));
  store(gates + 8, dc * load(before) * f * (1.0f - f));
  store(gates + 16, dc * i * (1.0f - g * g));
  store(gates + 24, da * th * o * (1.0f - o));
  store(cell_gradient, dc * f);
}

// pass.gates become their gradients, pass.projected_gradient those of h before its clip; pass.hidden and pass.cell
// are the gradients of the state after, then of the state before.
static void backward(const Layer& layer, const Pass& pass, int64_t first, int64_t last) {
  const Times times(pass, first, last);
  const int64_t steps = times.steps, H = layer.cells, P = layer.width;
  const int64_t padded = (P + PANEL - 1) / PANEL * PANEL, deep = (H + PANEL - 1) / PANEL * PANEL;
  if (!steps) return;
  const int64_t most = times.rows[0];
  const Floats carried(most * padded), activated_gradient(most * deep), zeros(H);
  memset(zeros, 0, sizeof(float) * H);
  memset(carried, 0, sizeof(float) * most * padded);
  const Rows hs(most), das(most), dhs(most);
  const Array<const float*> dgates(most);
  for (int64_t r = 0; r < most; r++) {
    hs[r] = carried + r * padded;
    das[r] = activated_gradient + r * deep;
    memcpy(hs[r], pass.hidden + (first + r) * P, sizeof(float) * P);
  }
  for (int64_t t = steps - 1; t >= 0; t--) {
    const int n = times.rows[t];
    const int64_t offset = times.offsets[t];
    for (int r = 0; r < n; r++) {
      const int64_t row = first + r, token = token_at(pass, row, t);
      const float* given = pass.out_gradient + row * pass.gradient_row + token * pass.gradient_token;
      const float* h = pass.projected + (offset + r) * P;
      float* dh = pass.projected_gradient + (offset + r) * P;
      for (int64_t j = 0; j < P; j++) {
        const bool inside = h[j] < layer.projection_clip && h[j] > -layer.projection_clip;
        dh[j] = inside ? hs[r][j] + given[j] : 0.0f;
      }
      dhs[r] = dh;
    }
    memset(activated_gradient, 0, sizeof(float) * n * deep);
    for (int64_t column = 0; column < deep; column += PANEL) {
      panel<Float32>(n, dhs, 0, layer.projection_back + column * P, P, das, column);
      for (int64_t unit = column; unit < smaller(column + PANEL, H); unit += UNITS)
        for (int r = 0; r < n; r++) {
          const int64_t row = first + r;
          const bool begins = pass.begins && pass.begins[row * pass.steps + t];
          const float* before = begins ? (const float*)zeros
                                : t    ? pass.cells + (times.offsets[t - 1] + r) * H
                                       : pass.start_cell + row * H;
          eight_units_back(pass.gates + (offset + r) * 4 * H + 4 * unit, pass.cells + (offset + r) * H + unit,
                           before + unit, das[r] + unit, pass.cell + row * H + unit, layer.cell_clip);
        }
    }
    for (int r = 0; r < n; r++) {
      dgates[r] = pass.gates + (offset + r) * 4 * H;
      memset(hs[r], 0, sizeof(float) * padded);
    }
    long_product<Float32>(n, dgates, layer.hidden_back, 4 * H, layer.back, padded, hs);
    if (pass.begins)
      for (int r = 0; r < n; r++)
        if (pass.begins[(first + r) * pass.steps + t]) {  // nothing before it had a part in it
          memset(hs[r], 0, sizeof(float) * padded);
          memset(pass.cell + (first + r) * H, 0, sizeof(float) * H);
        }
  }
  for (int64_t r = 0; r < most; r++) memcpy(pass.hidden + (first + r) * P, hs[r], sizeof(float) * P);
}

static void tanh_of(const float* x, float* y, int64_t count) {
  int64_t j = 0;
  for (; j + 8 <= count; j += 8) store(y + j, tanh(load(x + j)));
  float rest[8] = {0};
  for (int64_t k = j; k < count; k++) rest[k - j] = x[k];
  store(rest, tanh(load(rest)));
  for (int64_t k = j; k < count; k++) y[k] = rest[k - j];
}

}  // namespace VARIANT
}  // namespace elmo
