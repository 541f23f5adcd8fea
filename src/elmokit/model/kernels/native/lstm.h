// One layer of one direction over rows [first, last) of a batch: the whole time loop, and its backward pass.
// lstm.py is the definition; this is the same sums in another order.
#pragma once
#include "matrix.h"
#include "units.h"

namespace elmo {
namespace VARIANT {

constexpr int64_t CHUNK = 256, LONG_CHUNK = 512;  // rows of gates that are made from the inputs in one go; of words that repeat

// C[rows, columns] += A W, W in panels along its columns.
template <class W>
static void product(int rows, const float* const* a, const void* weights, int64_t depth, int64_t columns,
                    float* const* c) {
  const auto* w = (const typename W::Stored*)weights;
  for (int64_t column = 0; column < columns; column += PANEL)
    panel<W>(rows, a, 0, w + column * depth, depth, c, column);
}

// The same, W in blocks along the sum and panels within: for long sums to few columns.
template <class W>
static void long_product(int rows, const float* const* a, const void* weights, int64_t depth, int64_t block,
                         int64_t columns, float* const* c) {
  const auto* w = (const typename W::Stored*)weights;
  for (int64_t k = 0; k < depth; k += block) {
    int64_t column = 0;
    for (; column + 2 * PANEL <= columns; column += 2 * PANEL)
      two_panels<W>(rows, a, k, w + k * columns + column * block, PANEL * block, block, c, column);
    if (column < columns) panel<W>(rows, a, k, w + k * columns + column * block, block, c, column);
  }
}

// As `eight_units`, and the activated gates are kept in their place.
static ALIKE void eight_units_kept(float* gates, const float* before, float* cell, float* activated, float clip) {
  const Eight i = sigmoid(load(gates)), f = sigmoid(load(gates + 8));
  const Eight g = tanh(load(gates + 16)), o = sigmoid(load(gates + 24));
  const Eight c = bounded(f * load(before) + i * g, clip);
  store(cell, c);
  store(activated, o * tanh(c));
  store(gates, i);
  store(gates + 8, f);
  store(gates + 16, g);
  store(gates + 24, o);
}

// Which of some rows of x are the same memory: words that come again.
class Repeats {
 public:
  explicit Repeats(int64_t most) : slots(up_to_power(2 * most)), known(slots), row(slots) {}

  void forget() { memset(known, 0, sizeof(*known.held) * slots); }

  // The row that this x was first seen at: `here`, where it is new.
  int64_t first(const float* x, int64_t here) {
    uint64_t slot = (uint64_t(uintptr_t(x)) * 0x9e3779b97f4a7c15) >> 20 & (slots - 1);
    while (known[slot] && known[slot] != x) slot = (slot + 1) & (slots - 1);
    if (!known[slot]) known[slot] = x, row[slot] = here;
    return row[slot];
  }

 private:
  static int64_t up_to_power(int64_t count) {
    int64_t power = 1;
    while (power < count) power *= 2;
    return power;
  }
  const int64_t slots;
  const Array<const float*> known;
  const Array<int64_t> row;
};

// One layer over rows [first, last), step by step, with the memory that it works in. KEEP: what the gradients need is
// kept in the pass; else gates and activations live in memory of their own.
template <class W, bool KEEP>
struct ForwardPass {
  const Layer& layer;
  const Pass& pass;
  const Times& times;
  const int64_t first, H = layer.cells, P = layer.width, padded = up_to(P, PANEL);
  const int64_t most = times.rows[0], chunk = larger(pass.places ? LONG_CHUNK : CHUNK, most);  // rows of a step, of gates
  const Floats gate_memory{KEEP ? 0 : chunk * 4 * H}, activated_memory{KEEP ? 0 : most * H}, h_memory{most * padded};
  const Floats zeros{larger(H, P)};
  const Array<const float*> x{chunk}, h_before{most}, cell_before{most};
  const Array<int64_t> origin{chunk};
  const Rows gates{chunk}, new_gates{chunk}, cells{most}, activated{most}, h{most};
  Repeats repeats{KEEP || !pass.places ? 1 : chunk};

  ForwardPass(const Layer& layer, const Pass& pass, const Times& times, int64_t first)
      : layer(layer), pass(pass), times(times), first(first) {
    memset(zeros, 0, sizeof(float) * larger(H, P));
    memset(h_memory, 0, sizeof(float) * most * padded);
    for (int64_t r = 0; r < most; r++) {
      h[r] = h_memory + r * padded;
      memcpy(h[r], pass.hidden + (first + r) * P, sizeof(float) * P);
    }
  }

  void run() {
    for (int64_t t = 0; t < times.steps;) {
      const int64_t until = input_gates(t);
      for (float* const* now = gates; t < until; now += times.rows[t], t++) {
        recurrent_step(t, now);
        project(t);
      }
    }
    for (int64_t r = 0; r < most; r++) memcpy(pass.hidden + (first + r) * P, h[r], sizeof(float) * P);
  }

  // The inputs' share of the gates, for as many steps from t on as the chunk holds: returns the step after them. A word
  // that comes again is copied: it takes a tenth of the time.
  int64_t input_gates(int64_t t) {
    const bool repeated = !KEEP && pass.places;
    int64_t rows = 0, distinct = 0;
    if (repeated) repeats.forget();
    for (; t < times.steps && (rows == 0 || rows + times.rows[t] <= chunk); t++)
      for (int64_t r = 0; r < times.rows[t]; r++, rows++) {
        gates[rows] = KEEP ? pass.gates + (times.offsets[t] + r) * 4 * H : gate_memory + rows * 4 * H;
        const float* in = input_at(pass, first + r, t);
        origin[rows] = repeated ? repeats.first(in, rows) : rows;
        if (origin[rows] != rows) continue;
        memcpy(gates[rows], layer.bias, sizeof(float) * 4 * H);
        x[distinct] = in;
        new_gates[distinct++] = gates[rows];
      }
    product<W>(int(distinct), x, layer.input.values, layer.inputs, 4 * H, new_gates);
    for (int64_t r = 0; r < rows; r++)
      if (origin[r] != r) memcpy(gates[r], gates[origin[r]], sizeof(float) * 4 * H);
    return t;
  }

  // Gates with the share of h of the step before, and the cells that come of them: two panels of units at a time.
  void recurrent_step(int64_t t, float* const* gates) {
    const int n = times.rows[t];
    for (int r = 0; r < n; r++) {
      const bool begins = pass.begins && pass.begins[(first + r) * pass.steps + t];
      cells[r] = pass.cell + (first + r) * H;
      h_before[r] = begins ? zeros : h[r];
      cell_before[r] = begins ? zeros : cells[r];
      activated[r] = KEEP ? pass.activated + (times.offsets[t] + r) * H : activated_memory + r * H;
    }
    for (int64_t i = 0; i < H; i += 2 * UNITS) {
      const int64_t unit = there_and_back(t, i, 2 * UNITS, H), units = smaller(2 * UNITS, H - unit);
      add_recurrent_share(n, unit, units, gates);
      for (int r = 0; r < n; r++)
        for (int64_t u = unit; u < unit + units; u += UNITS)
          if constexpr (KEEP)
            eight_units_kept(gates[r] + 4 * u, cell_before[r] + u, cells[r] + u, activated[r] + u, layer.cell_clip);
          else
            eight_units<Fine>(gates[r] + 4 * u, cell_before[r] + u, cells[r] + u, activated[r] + u, layer.cell_clip);
    }
    if (KEEP)
      for (int r = 0; r < n; r++) memcpy(pass.cells + (times.offsets[t] + r) * H, cells[r], sizeof(float) * H);
  }

  void add_recurrent_share(int n, int64_t unit, int64_t units, float* const* gates) {
    const auto* weights = (const typename W::Stored*)layer.hidden.values + 4 * unit * P;
    if (units == 2 * UNITS)
      two_panels<W>(n, h_before, 0, weights, PANEL * P, P, gates, 4 * unit);
    else
      panel<W>(n, h_before, 0, weights, P, gates, 4 * unit);
  }

  // h of the step, from what its cells let out; and the layer's output.
  void project(int64_t t) {
    const int n = times.rows[t];
    memset(h_memory, 0, sizeof(float) * n * padded);
    long_product<W>(n, activated, layer.projection.values, H, layer.block, padded, h);
    for (int r = 0; r < n; r++) {
      for (int64_t j = 0; j < padded; j += 8) store(h[r] + j, bounded(load(h[r] + j), layer.projection_clip));
      if (KEEP) memcpy(pass.projected + (times.offsets[t] + r) * P, h[r], sizeof(float) * P);
      put_out(pass, first + r, t, h[r], P);
    }
  }
};

template <class W, bool KEEP>
static void run_forward(const Layer& layer, const Pass& pass, int64_t first, int64_t last) {
  const Times times(pass, first, last);
  if (times.steps) ForwardPass<W, KEEP>(layer, pass, times, first).run();
}

template <class W>
static void forward(const Layer& layer, const Pass& pass, int64_t first, int64_t last) {
  if (pass.gates)
    run_forward<W, true>(layer, pass, first, last);
  else
    run_forward<W, false>(layer, pass, first, last);
}

static inline void eight_units_backward(float* gates, const float* cell, const float* before, const float* activated_gradient,
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
  const int64_t padded = up_to(P, PANEL), deep = up_to(H, PANEL);
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
      panel<Float32>(n, dhs, 0, layer.projection_transposed + column * P, P, das, column);
      for (int64_t unit = column; unit < smaller(column + PANEL, H); unit += UNITS)
        for (int r = 0; r < n; r++) {
          const int64_t row = first + r;
          const bool begins = pass.begins && pass.begins[row * pass.steps + t];
          const float* before = begins ? (const float*)zeros
                                : t    ? pass.cells + (times.offsets[t - 1] + r) * H
                                       : pass.start_cell + row * H;
          eight_units_backward(pass.gates + (offset + r) * 4 * H + 4 * unit, pass.cells + (offset + r) * H + unit,
                           before + unit, das[r] + unit, pass.cell + row * H + unit, layer.cell_clip);
        }
    }
    for (int r = 0; r < n; r++) {
      dgates[r] = pass.gates + (offset + r) * 4 * H;
      memset(hs[r], 0, sizeof(float) * padded);
    }
    long_product<Float32>(n, dgates, layer.hidden_transposed, 4 * H, layer.transposed_block, padded, hs);
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
