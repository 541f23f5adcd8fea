// lstm.h for training, from bfloat16 operands: the time loop, its backward pass, and the weights' gradients.
// Gates, cells and all sums are float32. Shapes and names as in kernels.h.
#pragma once
#include "bfloat16.h"
#include "times.h"

namespace elmo {
namespace VARIANT {

struct Sizes {
  explicit Sizes(const Layer16& layer)
      : inputs(up_to(layer.inputs, PANEL)),
        width(up_to(layer.width, PANEL)),
        joined(inputs + width),
        cells(up_to(layer.cells, UNITS)),
        gates(4 * cells) {}
  int64_t inputs, width, joined, cells, gates;  // I', P', I' + P', H', 4H'
};

// Where a row of interleaved gates is among the model's, gate by gate; -1 where it is only there to fill a panel.
static inline int64_t gate_row(const Layer16& layer, int64_t row) {
  const int64_t gate = row % PANEL / UNITS, unit = row / PANEL * UNITS + row % UNITS;
  return unit < layer.cells ? gate * layer.cells + unit : -1;
}

static inline const float* row_or_null(const float* matrix, int64_t row, int64_t columns) {
  return row < 0 ? nullptr : matrix + row * columns;
}

// The panel's part of the layer's input weights or of its hidden weights: both side by side are I' + P' columns.
struct Side {
  Side(const Layer16& layer, const Sizes& size, int64_t column)
      : hidden(column >= size.inputs),
        column(hidden ? column - size.inputs : column),
        all(hidden ? layer.width : layer.inputs) {}
  const bool hidden;
  const int64_t column, all;
};

static void pack_gates(const Layer16& layer, const Sizes& size, int64_t p) {
  const float *by_input[PANEL], *by_hidden[PANEL];
  for (int r = 0; r < PANEL; r++) {
    const int64_t row = gate_row(layer, p * PANEL + r);
    by_input[r] = row_or_null(layer.input_weight, row, layer.inputs);
    by_hidden[r] = row_or_null(layer.hidden_weight, row, layer.width);
    const bool forgets = r / UNITS == 1;
    layer.start[p * PANEL + r] = row < 0 ? 0.0f : layer.bias[row] + (forgets ? layer.forget_bias : 0.0f);
  }
  Pair* out = layer.gates + p * PANEL * size.joined / 2;
  pack_columns(by_input, layer.inputs, out, size.inputs / 2);
  pack_columns(by_hidden, layer.width, out + PANEL * size.inputs / 2, size.width / 2);
}

static void pack_projection(const Layer16& layer, const Sizes& size, int64_t p) {
  const float* rows[PANEL];
  for (int r = 0; r < PANEL; r++) {
    const int64_t row = p * PANEL + r < layer.width ? p * PANEL + r : -1;
    rows[r] = row_or_null(layer.projection_weight, row, layer.cells);
  }
  pack_columns(rows, layer.cells, layer.projection + p * PANEL * size.cells / 2, size.cells / 2);
}

static void pack_projection_transposed(const Layer16& layer, const Sizes& size, int64_t p) {
  const Array<const float*> rows(layer.width);
  for (int64_t k = 0; k < layer.width; k++) rows[k] = layer.projection_weight + k * layer.cells;
  Pair* out = layer.projection_transposed + p * PANEL * size.width / 2;
  pack_rows<float>(rows, layer.width, p * PANEL, layer.cells, out, size.width / 2);
}

static void pack_gates_transposed(const Layer16& layer, const Sizes& size, int64_t p) {
  const Side side(layer, size, p * PANEL);
  const Array<const float*> rows(size.gates);
  for (int64_t k = 0; k < size.gates; k++)
    rows[k] = row_or_null(side.hidden ? layer.hidden_weight : layer.input_weight, gate_row(layer, k), side.all);
  Pair* out = layer.gates_transposed + p * PANEL * size.gates / 2;
  pack_rows<float>(rows, size.gates, side.column, side.all, out, size.gates / 2);
}

// One of its (4H' + P' + H'' + I' + P') / 32 panels.
static void pack_layer(const Layer16& layer, int64_t p) {
  const Sizes size(layer);
  const int64_t counts[] = {size.gates / PANEL, size.width / PANEL, up_to(layer.cells, PANEL) / PANEL};
  if (p < counts[0]) return pack_gates(layer, size, p);
  if ((p -= counts[0]) < counts[1]) return pack_projection(layer, size, p);
  if ((p -= counts[1]) < counts[2]) return pack_projection_transposed(layer, size, p);
  pack_gates_transposed(layer, size, p - counts[2]);
}

static inline void store16(uint16_t* p, Eight v) {
  _mm_storeu_si128((__m128i*)p, (__m128i)_mm256_cvtneps_pbh((__m256)v));
}

static inline void eight_units(float* gates, const float* before, float* cell, uint16_t* activated, float clip) {
  const Eight i = sigmoid(load(gates)), f = sigmoid(load(gates + 8));
  const Eight g = tanh(load(gates + 16)), o = sigmoid(load(gates + 24));
  const Eight c = bounded(f * load(before) + i * g, clip);
  store(cell, c);
  store16(activated, o * tanh(c));
  store(gates, i);
  store(gates + 8, f);
  store(gates + 16, g);
  store(gates + 24, o);
}

// Up to eight of them, zeros after.
static inline Eight load_some(const float* p, int64_t count) {
  return (Eight)_mm256_maskz_loadu_ps(count >= UNITS ? 0xff : __mmask8((1u << count) - 1), p);
}

static inline void store_some(float* p, int64_t count, Eight v) {
  _mm256_mask_storeu_ps(p, count >= UNITS ? 0xff : __mmask8((1u << count) - 1), (__m256)v);
}

// A row's share of the gates of eight units, known already, and the bias.
static inline void begin_gates(const Layer16& layer, const float* shares, int64_t unit, float* gates) {
  for (int gate = 0; gate < 4; gate++) {
    const Eight share = load_some(shares + gate * layer.cells + unit, layer.cells - unit);
    store(gates + gate * UNITS, share + load(layer.start + 4 * unit + gate * UNITS));
  }
}

static inline bool begins_at(const Pass& pass, int64_t row, int64_t t) {
  return pass.begins && pass.begins[row * pass.steps + t];
}

static void forward(const Layer16& layer, const Pass16& run, int64_t first, int64_t last) {
  const Pass& pass = run.pass;
  const Sizes size(layer);
  const Times times(pass, first, last);
  if (!times.steps) return;
  const int64_t most = times.rows[0], H = size.cells, P = layer.width;
  const Floats h(most * size.width), zeros(H);
  memset(zeros, 0, sizeof(float) * H);
  const Array<const Pair*> inputs(most), acts(most);
  const Array<const float*> before(most), shares(most);
  const Rows gates(most), projected(most);
  auto input = [&](int64_t t, int64_t r) { return run.inputs + (times.offsets[t] + r) * size.joined; };
  auto remember = [&](int64_t t, int64_t r, const float* hidden) {  // what the step's gates come from, beside x
    uint16_t* to = input(t, r) + size.inputs;
    if (begins_at(pass, first + r, t))
      memset(to, 0, sizeof(uint16_t) * size.width);
    else
      to_bfloat16(hidden, P, to, size.width);
  };
  for (int64_t r = 0; r < most; r++) {
    projected[r] = h + r * size.width;
    remember(0, r, pass.hidden + (first + r) * P);
  }
  for (int64_t t = 0; t < times.steps; t++) {
    const int64_t n = times.rows[t], offset = times.offsets[t];
    for (int64_t r = 0; r < n; r++) {
      const int64_t row = first + r;
      if (run.places)
        shares[r] = run.shares + run.places[row * pass.steps + token_at(pass, row, t)] * 4 * layer.cells;
      else
        to_bfloat16(pass.x + row * pass.x_row + token_at(pass, row, t) * pass.x_token, layer.inputs, input(t, r),
                    size.inputs);
      inputs[r] = (const Pair*)input(t, r);
      gates[r] = pass.gates + (offset + r) * size.gates;
      acts[r] = (const Pair*)(run.activated + (offset + r) * H);
      before[r] = begins_at(pass, row, t) ? (const float*)zeros
                  : t                     ? pass.cells + (times.offsets[t - 1] + r) * H
                                          : pass.start_cell + row * H;
    }
    for (int64_t unit = 0; unit < H; unit += UNITS) {
      const int64_t column = 4 * unit;
      for (int64_t r = 0; r < n; r++) ask_for<1>(gates[r] + column, PANEL);
      if (run.places)
        for (int64_t r = 0; r < n; r++) begin_gates(layer, shares[r], unit, gates[r] + column);
      panel<1>(n, inputs, layer.gates + column * size.joined / 2, size.joined / 2, gates, column,
               run.places ? nullptr : layer.start + column);
      for (int64_t r = 0; r < n; r++)
        eight_units(gates[r] + column, before[r] + unit, pass.cells + (offset + r) * H + unit,
                    (uint16_t*)acts[r] + unit, layer.cell_clip);
    }
    for (int64_t column = 0; column < size.width; column += PANEL)
      panel<1>(n, acts, layer.projection + column * H / 2, H / 2, projected, column, ZEROS);
    for (int64_t r = 0; r < n; r++) {
      const int64_t row = first + r, token = token_at(pass, row, t);
      for (int64_t j = 0; j < size.width; j += 8)
        store(projected[r] + j, bounded(load(projected[r] + j), layer.projection_clip));
      memcpy(pass.projected + (offset + r) * P, projected[r], sizeof(float) * P);
      memcpy(pass.out + row * pass.out_row + token * pass.out_token, projected[r], sizeof(float) * P);
      if (t + 1 < times.steps && r < times.rows[t + 1]) {
        remember(t + 1, r, projected[r]);
        continue;
      }
      memcpy(pass.hidden + row * P, projected[r], sizeof(float) * P);
      memcpy(pass.cell + row * H, pass.cells + (offset + r) * H, sizeof(float) * H);
    }
  }
}

static inline void eight_units_backward(const float* gates, uint16_t* gradients, const float* cell, const float* before,
                                    const float* activated_gradient, float* cell_gradient, float clip) {
  const Eight i = load(gates), f = load(gates + 8), g = load(gates + 16), o = load(gates + 24);
  const Eight c = load(cell), da = load(activated_gradient), th = tanh(c);
  const Eight dc = within(load(cell_gradient) + da * o * (1.0f - th * th), c, clip);
  store16(gradients, dc * g * i * (1.0f - i));
  store16(gradients + 8, dc * load(before) * f * (1.0f - f));
  store16(gradients + 16, dc * i * (1.0f - g * g));
  store16(gradients + 24, da * th * o * (1.0f - o));
  store(cell_gradient, dc * f);
}

// pass.hidden and pass.cell are the gradients of the state after, then of the state before.
static void backward(const Layer16& layer, const Pass16& run, int64_t first, int64_t last) {
  const Pass& pass = run.pass;
  const Sizes size(layer);
  const Times times(pass, first, last);
  if (!times.steps) return;
  const int64_t most = times.rows[0], H = size.cells, P = layer.width, I = layer.inputs;
  const Floats made(most * size.joined), activated_gradient(most * PANEL), zeros(H), dh(P);
  memset(zeros, 0, sizeof(float) * H);
  const Array<const Pair*> dhs(most), dgates(most);
  const Array<const float*> before(most);
  const Rows das(most), input_gradients(most);
  for (int64_t r = 0; r < most; r++) {
    das[r] = activated_gradient + r * PANEL;
    input_gradients[r] = made + r * size.joined;  // of x, then of h of the step before
    memcpy(input_gradients[r] + size.inputs, pass.hidden + (first + r) * P, sizeof(float) * P);
  }
  for (int64_t t = times.steps - 1; t >= 0; t--) {
    const int64_t n = times.rows[t], offset = times.offsets[t];
    for (int64_t r = 0; r < n; r++) {
      const int64_t row = first + r;
      const float* given = pass.out_gradient + row * pass.gradient_row + token_at(pass, row, t) * pass.gradient_token;
      const float* h = pass.projected + (offset + r) * P;
      const float* carried = input_gradients[r] + size.inputs;
      for (int64_t j = 0; j < P; j++) {
        const bool inside = h[j] < layer.projection_clip && h[j] > -layer.projection_clip;
        dh[j] = inside ? carried[j] + given[j] : 0.0f;
      }
      uint16_t* stored = run.projected_gradient + (offset + r) * size.width;
      to_bfloat16(dh, P, stored, size.width);
      dhs[r] = (const Pair*)stored;
      dgates[r] = (const Pair*)(run.gates_gradient + (offset + r) * size.gates);
      before[r] = begins_at(pass, row, t) ? (const float*)zeros
                  : t                     ? pass.cells + (times.offsets[t - 1] + r) * H
                                          : pass.start_cell + row * H;
    }
    for (int64_t column = 0; column < H; column += PANEL) {
      // What the units will need comes from far away, a little of each row: it is asked for before the product.
      const int64_t units = smaller(PANEL, H - column);
      for (int64_t r = 0; r < n; r++) {
        ask_for<0>(pass.gates + (offset + r) * size.gates + 4 * column, 4 * units);
        ask_for<0>(pass.cells + (offset + r) * H + column, units);
        ask_for<0>(before[r] + column, units);
        ask_for<1>((const uint16_t*)dgates[r] + 4 * column, 4 * units);
      }
      panel<1>(n, dhs, layer.projection_transposed + column * size.width / 2, size.width / 2, das, 0, ZEROS);
      for (int64_t r = 0; r < n; r++)
        for (int64_t unit = column; unit < column + units; unit += UNITS)
          eight_units_backward(pass.gates + (offset + r) * size.gates + 4 * unit, (uint16_t*)dgates[r] + 4 * unit,
                           pass.cells + (offset + r) * H + unit, before[r] + unit, das[r] + unit - column,
                           pass.cell + (first + r) * H + unit, layer.cell_clip);
    }
    for (int64_t column = 0; column < size.joined; column += PANEL)
      panel<1>(n, dgates, layer.gates_transposed + column * size.gates / 2, size.gates / 2, input_gradients, column, ZEROS);
    for (int64_t r = 0; r < n; r++) {
      const int64_t row = first + r;
      if (I) memcpy(run.x_gradient + (row * pass.steps + token_at(pass, row, t)) * I, input_gradients[r], sizeof(float) * I);
      if (begins_at(pass, row, t)) {  // nothing before it had a part in it
        memset(input_gradients[r] + size.inputs, 0, sizeof(float) * P);
        memset(pass.cell + row * H, 0, sizeof(float) * H);
      }
    }
  }
  for (int64_t r = 0; r < most; r++)
    memcpy(pass.hidden + (first + r) * P, input_gradients[r] + size.inputs, sizeof(float) * P);
}

// Panels of [N, columns], summed over the tokens.
static void pack_tokens(const uint16_t* matrix, int64_t tokens, int64_t columns, int64_t column, int64_t panels,
                        Pair* out) {
  const Array<const uint16_t*> rows(tokens);
  for (int64_t k = 0; k < tokens; k++) rows[k] = matrix + k * columns;
  pack_rows<uint16_t>(rows, tokens, column, columns, out, (tokens + 1) / 2, panels);
}

// What the gradients of gates and projection are multiplied with: one of (I' + P') / 32 + H'' / 32 panels.
static void pack_gradients(const Layer16& layer, const Pass16& run, int64_t p) {
  const Sizes size(layer);
  const int64_t pairs = (run.tokens + 1) / 2, inputs = size.joined / PANEL;
  if (p < inputs)
    pack_tokens(run.inputs, run.tokens, size.joined, p * PANEL, 1, run.inputs_packed + p * pairs * PANEL);
  else
    pack_tokens(run.activated, run.tokens, size.cells, (p - inputs) * PANEL, 1,
                run.activated_packed + (p - inputs) * pairs * PANEL);
}

// Rows [first, last) of the gates, interleaved, whole panels: their weights' and their biases' gradients.
static void gate_gradients(const Layer16& layer, const Pass16& run, int64_t first, int64_t last) {
  const Sizes size(layer);
  const int64_t pairs = (run.tokens + 1) / 2, count = last - first;
  const Array<Pair> held(count * pairs);
  const Array<const Pair*> a(count);
  const Floats unused(larger(layer.inputs, layer.width)), sums(count);
  const Rows by_input(count), by_hidden(count);
  pack_tokens(run.gates_gradient, run.tokens, size.gates, first, count / PANEL, held);
  for (int64_t r = 0; r < count; r++) {
    if (r % PANEL == 0) sum_panel(held + r * pairs, pairs, sums + r);
    a[r] = held + r / PANEL * PANEL * pairs + r % PANEL;
    const int64_t row = gate_row(layer, first + r);
    by_input[r] = row < 0 ? (float*)unused : run.input_weight_gradient + row * layer.inputs;
    by_hidden[r] = row < 0 ? (float*)unused : run.hidden_weight_gradient + row * layer.width;
    if (row >= 0) run.bias_gradient[row] = sums[r];
  }
  for (int64_t column = 0; column < size.joined; column += PANEL) {
    const Side side(layer, size, column);
    part_of_panel<PANEL>(count, a, run.inputs_packed + column * pairs, pairs, side.hidden ? by_hidden : by_input,
                         side.column, side.all - side.column, ZEROS);
  }
}

static void projection_gradients(const Layer16& layer, const Pass16& run, int64_t first, int64_t last) {
  const Sizes size(layer);
  const int64_t pairs = (run.tokens + 1) / 2, count = last - first;
  const Array<Pair> held(up_to(count, PANEL) * pairs);
  const Array<const Pair*> a(count);
  const Rows c(count);
  pack_tokens(run.projected_gradient, run.tokens, size.width, first, up_to(count, PANEL) / PANEL, held);
  for (int64_t r = 0; r < count; r++) {
    a[r] = held + r / PANEL * PANEL * pairs + r % PANEL;
    c[r] = run.projection_weight_gradient + (first + r) * layer.cells;
  }
  for (int64_t column = 0; column < layer.cells; column += PANEL)
    part_of_panel<PANEL>(count, a, run.activated_packed + column * pairs, pairs, c, column, layer.cells - column,
                         ZEROS);
}

// One of the blocks of gates, interleaved: the gradients of the distinct shares, sums of those of all tokens' gates.
static void share_gradients(const Layer16& layer, const Pass16& run, int64_t block) {
  const Pass& pass = run.pass;
  const Sizes size(layer);
  const Times times(pass, 0, pass.rows);
  const int64_t first = block * BLOCK16 / 4, last = smaller(first + BLOCK16 / 4, size.cells);  // units
  const int64_t units = smaller(last, layer.cells) - first;
  for (int64_t m = 0; m < run.distinct; m++)
    for (int gate = 0; gate < 4; gate++)
      memset(run.shares_gradient + (4 * m + gate) * layer.cells + first, 0, sizeof(float) * units);
  for (int64_t t = 0; t < times.steps; t++)
    for (int64_t r = 0; r < times.rows[t]; r++) {
      const uint16_t* from = run.gates_gradient + (times.offsets[t] + r) * size.gates;
      float* to = run.shares_gradient + run.places[r * pass.steps + token_at(pass, r, t)] * 4 * layer.cells;
      for (int64_t unit = first; unit < last; unit += UNITS)
        for (int gate = 0; gate < 4; gate++) {
          const __m128i some = _mm_loadu_si128((const __m128i*)(from + 4 * unit + gate * UNITS));
          const Eight values = (Eight)_mm256_slli_epi32(_mm256_cvtepu16_epi32(some), 16);
          float* sum = to + gate * layer.cells + unit;
          store_some(sum, layer.cells - unit, load_some(sum, layer.cells - unit) + values);
        }
    }
}

// One of the blocks of rows: first those of the gates, then those of the projection.
static void weight_gradients(const Layer16& layer, const Pass16& run, int64_t block) {
  const int64_t gates = Sizes(layer).gates, blocks = (gates + BLOCK16 - 1) / BLOCK16;
  if (block < blocks) return gate_gradients(layer, run, block * BLOCK16, smaller((block + 1) * BLOCK16, gates));
  block -= blocks;
  projection_gradients(layer, run, block * BLOCK16, smaller((block + 1) * BLOCK16, layer.width));
}

}  // namespace VARIANT
}  // namespace elmo
