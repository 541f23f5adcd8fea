// From the ids of words to the layers of sentences: characters, highway, projection, LSTMs, mix.
#include "reading.h"

#include <memory>
#include <numeric>

#include "team.h"

namespace elmo {
namespace {

constexpr int64_t CHUNK = 1024;  // words at once: bounds memory
constexpr int64_t RUN = 64;      // words of a convolution's task: its panels of the table stay in the cache
constexpr int64_t WIDEST = 4;    // panels of a convolution's task
constexpr int64_t FEW = 64;      // characters that are asked for before they are needed
constexpr int64_t DIRECTIONS = 2;

std::unique_ptr<float[]> floats(int64_t count) { return std::unique_ptr<float[]>(new float[count]); }

// New words to the table of vectors.
class NewWords {
 public:
  explicit NewWords(const Reading& reading) : all(reading), model(*reading.model) {
    if (!all.words) return;
    const int64_t most = std::min(all.words, CHUNK);
    for (auto& part : features) part = floats(most * model.features);
    for (int64_t i = model.filters_count - 1; i >= 0; i--) cut(model.filters[i]);  // the widest take longest: first
    note_characters();
  }

  void add_to(Phases& phases) {
    for (int64_t first = 0; first < all.words; first += CHUNK) {
      const int64_t rows = std::min(CHUNK, all.words - first);
      int stage = 0, stages = 1 + int(model.highways_count) + (model.projection ? 1 : 0);
      // What a stage gives: to the one of two buffers that it does not read, or, the last, to the table.
      auto target = [&] {
        return ++stage == stages ? all.table + (all.first + first) * all.stride : features[stage % 2].get();
      };
      float* x = target();
      convolve(phases, first, rows, x);
      for (int64_t i = 0; i < model.highways_count; i++) {
        float* out = target();
        highway(phases, model.highways + 2 * i, rows, x, out);
        x = out;
      }
      if (model.projection) project(phases, rows, x, target());
    }
  }

 private:
  void cut(const Filters& filters) {
    for (int64_t from = 0; from < filters.real; from += WIDEST * PANEL)
      parts.push_back(part_of(filters, from, WIDEST * PANEL));
  }

  static Filters part_of(Filters filters, int64_t from, int64_t most) {
    filters.table += from * filters.width * filters.characters;
    filters.column += from;
    filters.filters = std::min(most, filters.filters - from);
    filters.real = std::min(most, filters.real - from);
    return filters;
  }

  void note_characters() {
    std::vector<bool> met(model.filters->characters);
    for (int64_t i = 0; i < all.words * all.length && (int64_t)characters.size() <= FEW; i++)
      if (!met[all.ids[i]]) {
        met[all.ids[i]] = true;
        characters.push_back(all.ids[i]);
      }
    if ((int64_t)characters.size() > FEW) characters.clear();
  }

  // A few words wait for their rows of the tables, which lie far from each other: those of a panel are asked for while
  // the one before it is worked on.
  void ask_for(const Filters& panel) const {
    for (int64_t offset = 0; offset < panel.width; offset++)
      for (const int32_t character : characters) {
        const float* row = panel.table + (offset * panel.characters + character) * PANEL;
        __builtin_prefetch(row, 0, 2);
        __builtin_prefetch(row + PANEL / 2, 0, 2);
      }
  }

  void convolve(Phases& phases, int64_t first, int64_t rows, float* x) {
    Words words = {};
    words.ids = all.ids + first * all.length;
    words.words = rows, words.length = all.length;
    words.features = x, words.stride = model.features;
    const int64_t runs = (rows + RUN - 1) / RUN, count = parts.size();
    const Filters& widest = model.filters[model.filters_count - 1];
    const int64_t filled = widest.column + widest.real;
    phases.add(runs * count, [=](int64_t task) {
      const Filters& part = parts[task % count];
      const int64_t begin = task / count * RUN, end = std::min(begin + RUN, rows);
      for (int64_t from = 0; from < part.real; from += PANEL) {
        if (from == 0) ask_for(part);
        if (from + PANEL < part.real) ask_for(part_of(part, from + PANEL, PANEL));
        kernels().convolve(part_of(part, from, PANEL), words, begin, end);
      }
      for (int64_t row = begin; row < end; row++) {
        float* features = x + row * model.features;
        kernels().activate(features + part.column, model.bias + part.column, part.real, model.by_tanh);
        const int64_t until = part.column + part.real;  // after the last of all filters, zeros fill the panel
        if (until == filled) std::fill(features + until, features + model.features, 0.0f);
      }
    });
  }

  void highway(Phases& phases, const Linear* layers, int64_t rows, const float* x, float* out) {
    const PanelTasks tasks(rows, layers->outputs, all.threads);
    phases.add(tasks.count(), [=](int64_t task) {
      tasks.run(task, [=](int64_t first, int64_t last, int64_t from, int64_t to) {
        kernels().highway(layers[0], layers[1], x, out, first, last, from, to);
      });
    });
  }

  void project(Phases& phases, int64_t rows, const float* x, float* out) {
    const PanelTasks tasks(rows, model.projection->outputs, all.threads);
    phases.add(tasks.count(), [=](int64_t task) {
      tasks.run(task, [=](int64_t first, int64_t last, int64_t from, int64_t to) {
        kernels().linear(*model.projection, x, out, first, last, from, to);
      });
    });
  }

  const Reading& all;
  const Model& model;
  std::unique_ptr<float[]> features[2];  // [CHUNK, F'] each
  std::vector<Filters> parts;
  std::vector<int32_t> characters;  // of the new words; none where they are many
};

// Sentences through the LSTMs, the longest rows first, and what is given out of them.
class Sentences {
 public:
  explicit Sentences(const Reading& reading) : all(reading), model(*reading.model), order(reading.rows) {
    if (!all.rows) return;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return all.lengths[a] > all.lengths[b]; });
    for (const int64_t row : order) lengths.push_back(all.lengths[row]);
    places.reserve(all.rows * all.steps);
    for (const int64_t row : order)
      places.insert(places.end(), all.places + row * all.steps, all.places + (row + 1) * all.steps);
    hidden = floats(stacks() * all.rows * width);
    cell = floats(stacks() * all.rows * cells);
    layers = floats(model.layers_count * all.rows * all.steps * DIRECTIONS * width);
    begin_states();
    make_passes();
  }

  void add_to(Phases& phases, Pieces& side) {
    if (all.rows) tasks = std::make_unique<RowTasks>(passes[0], DIRECTIONS, all.threads);
    const int64_t count = tasks ? tasks->count() : 0;
    auto run = [this, count, &side](int64_t task) {
      if (task >= count) return side.hash(task - count);
      tasks->run(task, model.layers_count, [&](int64_t i, int64_t first, int64_t last) {
        kernels().forward(model.layers[i], passes[i], first, last);
      });
    };
    phases.add(count + side.size(), run, count + side.threads());
    phases.add(all.rows, [this](int64_t row) { give_out(row); }, 1 + all.rows / 16);
  }

 private:
  int64_t stacks() const { return DIRECTIONS * model.layers_count; }

  void begin_states() {
    if (!all.hidden) {
      std::fill_n(hidden.get(), stacks() * all.rows * width, 0.0f);
      std::fill_n(cell.get(), stacks() * all.rows * cells, 0.0f);
      return;
    }
    for (int64_t i = 0; i < stacks(); i++)
      for (int64_t r = 0; r < all.rows; r++) {
        const int64_t from = i * all.rows + order[r], to = i * all.rows + r;
        std::copy_n(all.hidden + from * width, width, hidden.get() + to * width);
        std::copy_n(all.cell + from * model.cells, model.cells, cell.get() + to * cells);
        std::fill_n(cell.get() + to * cells + model.cells, cells - model.cells, 0.0f);
      }
  }

  float* layer_at(int64_t layer, int64_t row, int64_t token) {  // of an LSTM; 0 the first
    return layers.get() + ((layer * all.rows + row) * all.steps + token) * DIRECTIONS * width;
  }

  void make_passes() {
    for (int64_t direction = 0; direction < DIRECTIONS; direction++)
      for (int64_t layer = 0; layer < model.layers_count; layer++) {
        Pass pass = {};
        pass.rows = all.rows, pass.steps = all.steps;
        pass.lengths = lengths.data();
        pass.backwards = int32_t(direction), pass.skip = model.skip && layer;
        // The last token that a direction comes to is not run, where neither it nor the state after it is wanted.
        pass.spared = all.margin && !all.hidden_after;
        pass.x = layer ? layer_at(layer - 1, 0, 0) + direction * width : all.table;
        pass.x_row = all.steps * DIRECTIONS * width;
        pass.x_token = layer ? DIRECTIONS * width : all.stride;
        pass.places = layer ? nullptr : places.data();
        pass.out = layer_at(layer, 0, 0) + direction * width;
        pass.out_row = all.steps * DIRECTIONS * width, pass.out_token = DIRECTIONS * width;
        pass.hidden = hidden.get() + passes.size() * all.rows * width;
        pass.cell = cell.get() + passes.size() * all.rows * cells;
        passes.push_back(pass);
      }
  }

  // Of one row: the tokens that are asked for, and the state after it.
  void give_out(int64_t row) {
    const int64_t count = lengths[row] - 2 * all.margin, size = DIRECTIONS * width;
    float* out = all.out[order[row]];
    for (int64_t n = 0; n < count; n++) {
      const int64_t token = n + all.margin;
      const float* x = all.table + places[row * all.steps + token] * all.stride;
      if (all.mixed_count) {
        mix(row, token, x, out + n * size);
      } else {
        std::copy_n(x, width, out + n * size);
        std::copy_n(x, width, out + n * size + width);
      }
    }
    for (int64_t layer = 0; layer < model.layers_count && !all.mixed_count; layer++)
      std::copy_n(layer_at(layer, row, all.margin), count * size, out + (1 + layer) * count * size);
    for (int64_t i = 0; i < stacks() && all.hidden_after; i++) {
      const int64_t from = i * all.rows + row, to = i * all.rows + order[row];
      std::copy_n(hidden.get() + from * width, width, all.hidden_after + to * width);
      std::copy_n(cell.get() + from * cells, model.cells, all.cell_after + to * model.cells);
    }
  }

  void mix(int64_t row, int64_t token, const float* x, float* out) {
    std::vector<const float*> mixed(all.mixed_count);
    for (int64_t direction = 0; direction < DIRECTIONS; direction++) {
      for (int64_t i = 0; i < all.mixed_count; i++) {
        const int64_t layer = all.mixed[i];
        mixed[i] = layer ? layer_at(layer - 1, row, token) + direction * width : x;
      }
      kernels().mix(mixed.data(), all.weights, all.mixed_count, all.factor, all.divisor, out + direction * width, width);
    }
  }

  const Reading& all;
  const Model& model;
  const int64_t width = model.layers->width, cells = model.layers->cells;
  std::vector<int64_t> order;  // of the rows, the longest first
  std::vector<int32_t> lengths, places;
  std::unique_ptr<float[]> hidden, cell, layers;  // [2, L, B, P], [2, L, B, H'], [L, B, T, 2P]
  std::vector<Pass> passes;
  std::unique_ptr<RowTasks> tasks;
};

}  // namespace

int read(const Reading& reading) {
  Pieces side(reading.spans, reading.spans_count);
  NewWords words(reading);
  Sentences sentences(reading);
  Phases phases;
  words.add_to(phases);
  sentences.add_to(phases, side);
  const int failed = phases.run(reading.threads);
  side.join(reading.digests);
  return failed;
}

}  // namespace elmo
