// One layer of one direction, as lstm.h, from weights and operands of fewer bits (words.h). Gates, cells and outputs are
// floats; x, h and what is projected are rounded row by row and step by step.
#pragma once
#include "units.h"
#include "words.h"

namespace elmo {
namespace VARIANT {

template <class P>
struct WordPass {
  // From so many rows on, a step reads its weights, those of its inputs too, for itself: they are used often enough,
  // and no gates need to be kept. With fewer, the inputs' share is made for so many rows of several steps at once.
  static constexpr int64_t MANY = 64;
  static constexpr int64_t GROUP = 4;  // panels between products and activations

  const Layer& layer;
  const Pass& pass;
  const Times& times;
  const int64_t first, H = layer.cells, width = layer.width, padded = up_to(width, PANEL), panels = H / UNITS;
  const int64_t most = times.rows[0];
  const Floats gate_memory{MANY * 4 * H}, activated_memory{most * H}, h_memory{most * padded}, zeros{larger(H, width)};
  RoundedRows<P> x{larger(MANY, most), layer.inputs}, h{most + 1, width}, activated{most, H};
  const Array<const typename P::Value*> h_rows{most};
  const Floats h_scales{most};
  const Array<const float*> cell_before{most};
  const Rows gates{MANY}, cells{most}, hs{most};

  WordPass(const Layer& layer, const Pass& pass, const Times& times, int64_t first)
      : layer(layer), pass(pass), times(times), first(first) {
    memset(zeros, 0, sizeof(float) * larger(H, width));
    memset(h_memory, 0, sizeof(float) * most * padded);
    for (int64_t r = 0; r < MANY; r++) gates[r] = gate_memory + r * 4 * H;
    for (int64_t r = 0; r < most; r++) {
      hs[r] = h_memory + r * padded;
      cells[r] = pass.cell + (first + r) * H;
      memcpy(hs[r], pass.hidden + (first + r) * width, sizeof(float) * width);
      h.put(r, hs[r]);
    }
    h.put(most, zeros);
  }

  void run() {
    int64_t t = 0;
    for (; t < times.steps && times.rows[t] >= MANY; t++) {
      begin(t);
      whole_step(t);
      project(t);
    }
    while (t < times.steps) {
      const int64_t until = input_gates(t);
      for (float* const* now = gates; t < until; now += times.rows[t], t++) {
        begin(t);
        recurrent_step(t, now);
        project(t);
      }
    }
    for (int64_t r = 0; r < most; r++) memcpy(pass.hidden + (first + r) * width, hs[r], sizeof(float) * width);
  }

  // What a step begins from: h and cells of the one before, or nothing.
  void begin(int64_t t) {
    for (int64_t r = 0; r < times.rows[t]; r++) {
      const bool begins = pass.begins && pass.begins[(first + r) * pass.steps + t];
      h_rows[r] = h.rows[begins ? most : r];
      h_scales[r] = h.scales[begins ? most : r];
      cell_before[r] = begins ? zeros : cells[r];
    }
  }

  // A few rows x two panels at a time, from inputs to cells: their gates never leave the cache.
  void whole_step(int64_t t) {
    const int64_t n = times.rows[t];
    for (int64_t r = 0; r < n; r++) x.put(r, input_at(pass, first + r, t));
    float memory[WORD_ROWS][2 * PANEL] __attribute__((aligned(64))), *some[WORD_ROWS];
    for (int r = 0; r < WORD_ROWS; r++) some[r] = memory[r];
    const Rounded<P> before{h_rows, h_scales};
    for (int64_t i = 0; i < panels; i += 2) {
      const int64_t p = there_and_back(t, i, 2, panels), now = smaller(2, panels - p);
      for (int64_t row = 0, rows; row < n; row += rows) {
        rows = rows_now(n - row);
        for (int64_t r = 0; r < rows; r++) memcpy(some[r], layer.bias + p * PANEL, sizeof(float) * now * PANEL);
        word_panels<P>(rows, x.all().from(row), layer.input, x.words, p, now, some, 0);
        word_panels<P>(rows, before.from(row), layer.hidden, h.words, p, now, some, 0);
        for (int64_t r = 0; r < rows; r++) make_cells(row + r, some[r], p, now);
      }
    }
  }

  // The inputs' share of the gates, for as many steps from t on as there is room for: returns the step after them.
  int64_t input_gates(int64_t t) {
    int64_t rows = 0;
    for (; t < times.steps && (rows == 0 || rows + times.rows[t] <= MANY); t++)
      for (int64_t r = 0; r < times.rows[t]; r++, rows++) {
        x.put(rows, input_at(pass, first + r, t));
        memcpy(gates[rows], layer.bias, sizeof(float) * 4 * H);
      }
    word_panels<P>(rows, x.all(), layer.input, x.words, 0, panels, gates, 0);
    return t;
  }

  void recurrent_step(int64_t t, float* const* gates) {
    const int64_t n = times.rows[t];
    for (int64_t i = 0; i < panels; i += GROUP) {
      const int64_t p = there_and_back(t, i, GROUP, panels), now = smaller(GROUP, panels - p);
      word_panels<P>(n, Rounded<P>{h_rows, h_scales}, layer.hidden, h.words, p, now, gates, p * PANEL,
                     t % 2 ? -1 : 1);
      for (int64_t r = 0; r < n; r++) make_cells(r, gates[r] + p * PANEL, p, now);
    }
  }

  void make_cells(int64_t r, float* gates, int64_t panel, int64_t count) {
    for (int64_t p = 0; p < count; p++) {
      const int64_t unit = (panel + p) * UNITS;
      eight_units<Short>(gates + p * PANEL, cell_before[r] + unit, cells[r] + unit, activated_memory + r * H + unit,
                         layer.cell_clip);
    }
  }

  // h of the step, from what its cells let out; and the layer's output.
  void project(int64_t t) {
    const int64_t n = times.rows[t];
    for (int64_t r = 0; r < n; r++) activated.put(r, activated_memory + r * H);
    memset(h_memory, 0, sizeof(float) * n * padded);
    word_panels<P>(n, activated.all(), layer.projection, activated.words, 0, padded / PANEL, hs, 0);
    for (int64_t r = 0; r < n; r++) {
      for (int64_t j = 0; j < padded; j += 8) store(hs[r] + j, bounded(load(hs[r] + j), layer.projection_clip));
      put_out(pass, first + r, t, hs[r], width);
      h.put(r, hs[r]);
    }
  }
};

template <class P>
static void word_forward(const Layer& layer, const Pass& pass, int64_t first, int64_t last) {
  const Flushed flushed;
  const Times times(pass, first, last);
  if (times.steps) WordPass<P>(layer, pass, times, first).run();
}

}  // namespace VARIANT
}  // namespace elmo
