// The library's functions, called by Python through ctypes: choose the variant for this processor, share out the work.
#include <stddef.h>
#include <stdlib.h>

#include <memory>

#include "reading.h"
#include "team.h"

using namespace elmo;

// AVX-512 with what else this processor has for words: bfloat16 and int8 in hardware. Integers' sums are exact, so
// those of AVX2 may stand in for AVX-512's.
static const Kernels* avx512_with_units() {
#ifdef ELMO_X86
  static const Kernels kernels = [] {
    Kernels all = *avx512f_kernels();
    all.name = "avx512";
    __builtin_cpu_init();
    const bool words = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    all.precisions[INT8] = avx2_kernels()->precisions[INT8];
#ifdef ELMO_VNNI
    if (words && __builtin_cpu_supports("avx512vnni")) all.precisions[INT8] = *vpdpbusd();
#endif
#ifdef ELMO_BFLOAT16
    if (words && __builtin_cpu_supports("avx512bf16")) all.precisions[BFLOAT16] = *vdpbf16ps();
#endif
    return all;
  }();
  return &kernels;
#else
  return nullptr;
#endif
}

// The best first. "avx512f" is AVX-512 without its units for words: what stands for these is tested against them.
static const Kernels* by_name(const char* name) {
  bool avx2 = false, avx512 = false;
#ifdef ELMO_X86
  __builtin_cpu_init();
  avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  avx512 = avx2 && __builtin_cpu_supports("avx512f");
#endif
  const bool any = !name || !*name;
  if (avx512 && (any || !strcmp(name, "avx512"))) return avx512_with_units();
  if (avx512 && !strcmp(name, "avx512f")) return avx512f_kernels();
  if (avx2 && (any || !strcmp(name, "avx2"))) return avx2_kernels();
  return any || !strcmp(name, "portable") ? portable_kernels() : nullptr;
}

static std::atomic<const Kernels*> chosen{nullptr};

const Kernels& elmo::kernels() {
  const Kernels* now = chosen.load(std::memory_order_acquire);
  if (!now) {
    now = by_name(nullptr);
    chosen.store(now, std::memory_order_release);
  }
  return *now;
}

// Both directions at the same time, each `layers` of its own: run(layer, first row, last). Then what is on the side.
template <class Run>
static int over_rows(const Pass& pass, int64_t directions, int64_t layers, int64_t threads, Run run,
                     Pieces* side = nullptr) try {
  const RowTasks rows(pass, directions, threads);
  const int64_t count = rows.count(), others = side ? side->size() : 0, more = side ? side->threads() : 0;
  return share_out(count + others, std::min(threads, count + more), [&](int64_t task) {
    if (task >= count) return side->hash(task - count);
    rows.run(task, layers, run);
  });
} catch (const std::exception&) {
  return 1;
}

#define EXPORT extern "C" __attribute__((visibility("default")))
#define QUOTED(name) #name
#define TEXT(name) QUOTED(name)

// What this was compiled from (setup.py): Python asks before it calls anything else.
#ifndef ELMOKIT_VERSION
#define ELMOKIT_VERSION unknown
#endif
#ifndef ELMOKIT_SOURCES
#define ELMOKIT_SOURCES unknown
#endif
EXPORT const char* elmo_version() { return TEXT(ELMOKIT_VERSION); }
EXPORT const char* elmo_sources() { return TEXT(ELMOKIT_SOURCES); }

// The bytes of a struct, by name, or where one of its fields is: "Layer", "Layer.format"; -1 for other names.
EXPORT int64_t elmo_bytes(const char* name) {
#define BOTH(type, field) {#type, sizeof(type)}, {#type "." #field, offsetof(type, field)}
  static const struct { const char* name; int64_t bytes; } known[] = {
      BOTH(Packed, offset),  BOTH(Layer, format),   BOTH(Pass, start_cell), BOTH(Filters, real),    BOTH(Words, features_gradient),
      BOTH(Linear, format), BOTH(Span, count),      BOTH(Operand, column),  BOTH(Product, symmetric),
      BOTH(Softmax, errors), BOTH(Layer16, projection_clip), BOTH(Pass16, projection_weight_gradient),
      BOTH(Highway16, width), BOTH(Model, cells),     BOTH(Reading, threads)};
#undef BOTH
  for (const auto& each : known)
    if (!strcmp(name, each.name)) return each.bytes;
  return -1;
}

EXPORT const char* elmo_variant() { return kernels().name; }

// Has the processor a unit for words of this format, and may the chosen variant use it?
EXPORT int elmo_in_hardware(int format) {
  const Precision* unit = format == BFLOAT16 ? vdpbf16ps() : format == INT8 ? vpdpbusd() : nullptr;
  return unit && kernels().precisions[format].forward == unit->forward;
}

// 1: it is used from now on; 0: this processor cannot.
EXPORT int elmo_choose(const char* name) {
  const Kernels* named = by_name(name);
  if (!named) return 0;
  chosen.store(named, std::memory_order_release);
  return 1;
}

// One digest a span; of little memory, by no more threads than their start is worth.
EXPORT int elmo_digest(const Span* spans, int64_t count, uint64_t* digests, int64_t threads) try {
  Pieces pieces(spans, count);
  const int64_t worth = 1 + pieces.size() / 16;
  const int failed = share_out(pieces.size(), std::min(threads, worth), [&](int64_t piece) { pieces.hash(piece); });
  pieces.join(digests);
  return failed;
} catch (const std::exception&) {
  return 1;
}

// Where elmo_forward cuts such rows: writes at most rows + 1 ends, and returns how many.
EXPORT int64_t elmo_split(const int32_t* lengths, int64_t rows, int64_t directions, int64_t threads, int64_t* ends) try {
  const std::vector<int64_t> all = cuts(lengths, rows, directions, threads);
  std::copy(all.begin(), all.end(), ends);
  return all.size();
} catch (const std::exception&) {
  return 0;
}

// layers and passes [directions, layers]; the spans are hashed on the side, by threads that have nothing else to do.
EXPORT int elmo_forward(const Layer* layers, const Pass* passes, int64_t directions, int64_t count, int64_t threads,
                        const Span* spans, int64_t spans_count, uint64_t* digests) try {
  Pieces side(spans, spans_count);
  auto run = [&](int64_t i, int64_t first, int64_t last) { kernels().forward(layers[i], passes[i], first, last); };
  const int failed = over_rows(*passes, directions, count, threads, run, &side);
  side.join(digests);
  return failed;
} catch (const std::exception&) {
  return 1;
}

EXPORT int elmo_backward(const Layer* layers, const Pass* passes, int64_t directions, int64_t threads) {
  return over_rows(*passes, directions, 1, threads, [&](int64_t i, int64_t first, int64_t last) {
    kernels().backward(layers[i], passes[i], first, last);
  });
}

// Ids of words -> layers of sentences.
EXPORT int elmo_read(const Reading* reading) try {
  return read(*reading);
} catch (const std::exception&) {
  return 1;
}

// Words in runs of 64, or fewer where there would be too few runs for the threads: a panel of the table stays in the
// cache. The last filters come first: they are the widest and the most, and what is short fills the gaps at the end.
EXPORT int elmo_convolve(const Filters* filters, int64_t count, const Words* words, int64_t threads) {
  const int64_t run = std::max<int64_t>(8, std::min<int64_t>(64, words->words / (2 * threads)));
  const int64_t runs = (words->words + run - 1) / run;
  return share_out(runs * count, threads, [&](int64_t task) {
    const int64_t first = task % runs * run;
    kernels().convolve(filters[count - 1 - task / runs], *words, first, std::min(first + run, words->words));
  });
}

// By panels, so that no two threads add to the same place.
EXPORT int elmo_convolve_backward(const Filters* filters, int64_t count, const Words* words, int64_t threads) {
  std::vector<std::pair<int64_t, int64_t>> tasks;
  for (int64_t i = 0; i < count; i++)
    for (int64_t at = 0; at < filters[i].filters / PANEL; at++) tasks.emplace_back(i, at);
  return share_out((int64_t)tasks.size(), threads, [&](int64_t task) {
    kernels().convolve_backward(filters[tasks[task].first], *words, tasks[task].second, tasks[task].second + 1);
  });
}

EXPORT int elmo_linear(const Linear* layer, const float* x, float* out, int64_t rows, int64_t threads) {
  const PanelTasks tasks(rows, layer->outputs, threads);
  return share_out(tasks.count(), threads, [&](int64_t task) {
    tasks.run(task, [&](int64_t first, int64_t last, int64_t from, int64_t to) {
      kernels().linear(*layer, x, out, first, last, from, to);
    });
  });
}

EXPORT int elmo_highway(const Linear* transform, const Linear* carry, const float* x, float* out, int64_t rows,
                        int64_t threads) {
  const PanelTasks tasks(rows, transform->outputs, threads);
  return share_out(tasks.count(), threads, [&](int64_t task) {
    tasks.run(task, [&](int64_t first, int64_t last, int64_t from, int64_t to) {
      kernels().highway(*transform, *carry, x, out, first, last, from, to);
    });
  });
}

EXPORT int elmo_tanh(const float* x, float* y, int64_t count) {
  kernels().tanh(x, y, count);
  return 0;
}

// For training; Python asks elmo_in_hardware first.
static const Bfloat16Kernels* bfloat16() { return elmo_in_hardware(BFLOAT16) ? bfloat16_kernels() : nullptr; }

template <class T>
static std::unique_ptr<T[]> room(int64_t count) {  // not filled
  return std::unique_ptr<T[]>(new T[count]);
}

// All of them at once: their operands are packed by all threads, then blocks of rows of all results are shared out.
EXPORT int elmo_products16(const Product* given, int64_t count, int64_t threads) try {
  const Bfloat16Kernels& now = *bfloat16();
  std::vector<Product> products(given, given + count);
  std::vector<std::unique_ptr<Pair[]>> packed;
  std::vector<std::pair<int64_t, int64_t>> panels, blocks;  // of a product: its panels, its blocks of rows
  std::vector<int64_t> sizes, mirrored;
  for (int64_t i = 0; i < count; i++) {
    Product& product = products[i];
    const int64_t pairs = (product.b.rows + 1) / 2, rows = product.a.rows, all = up_to(product.b.columns, PANEL) / PANEL;
    packed.push_back(room<Pair>(all * PANEL * pairs));
    product.packed = packed.back().get();
    for (int64_t p = 0; p < all; p++) panels.emplace_back(i, p);
    // As many rows as stay in the cache, or fewer, so that each thread has some.
    const int64_t fitting = CACHED16 / std::max<int64_t>(pairs, 1) / PANEL * PANEL;
    const int64_t share = up_to((rows + threads - 1) / threads, PANEL);
    sizes.push_back(std::max<int64_t>(PANEL, std::min(fitting, share)));
    for (int64_t row = 0; row < rows; row += sizes.back()) blocks.emplace_back(i, row);
    if (product.symmetric) mirrored.push_back(i);
  }
  const int packing = share_out((int64_t)panels.size(), threads, [&](int64_t task) {
    now.pack(products[panels[task].first], panels[task].second, panels[task].second + 1);
  });
  const int multiplying = share_out((int64_t)blocks.size(), threads, [&](int64_t task) {
    const auto [i, row] = blocks[task];
    now.multiply(products[i], row, std::min(row + sizes[i], products[i].a.rows));
  });
  return packing | multiplying | share_out((int64_t)mirrored.size(), threads, [&](int64_t task) {
           now.mirror(products[mirrored[task]]);
         });
} catch (const std::exception&) {
  return 1;
}

EXPORT int elmo_highway16(const Highway16* highway, int64_t threads) {
  const int64_t all = highway->rows * highway->width, some = 1 << 15;
  return share_out((all + some - 1) / some, threads, [&](int64_t i) {
    bfloat16()->highway(*highway, i * some, std::min((i + 1) * some, all));
  });
}

EXPORT int elmo_highway_backward16(const Highway16* highway, int64_t threads) {
  const int64_t some = 128;  // columns
  return share_out((highway->width + some - 1) / some, threads, [&](int64_t i) {
    bfloat16()->highway_backward(*highway, i * some, std::min((i + 1) * some, highway->width));
  });
}

EXPORT int elmo_forward16(const Layer16* layers, const Pass16* passes, int64_t directions, int64_t threads) {
  const Bfloat16Kernels& now = *bfloat16();
  const int64_t inputs = layers->inputs, cells = layers->cells, width = layers->width;
  const int64_t panels =
      (4 * up_to(cells, UNITS) + up_to(cells, PANEL) + up_to(inputs, PANEL) + 2 * up_to(width, PANEL)) / PANEL;
  const int failed = share_out(directions * panels, threads,
                               [&](int64_t i) { now.pack_layer(layers[i / panels], i % panels); });
  return failed | over_rows(passes->pass, directions, 1, threads, [&](int64_t i, int64_t first, int64_t last) {
           now.forward(layers[i], passes[i], first, last);
         });
}

EXPORT int elmo_backward16(const Layer16* layers, const Pass16* passes, int64_t directions, int64_t threads) {
  const Bfloat16Kernels& now = *bfloat16();
  return over_rows(passes->pass, directions, 1, threads, [&](int64_t i, int64_t first, int64_t last) {
    now.backward(layers[i], passes[i], first, last);
  });
}

// The weights' gradients, after elmo_backward16.
EXPORT int elmo_weights16(const Layer16* layers, const Pass16* passes, int64_t directions, int64_t threads) {
  const Bfloat16Kernels& now = *bfloat16();
  const int64_t inputs = layers->inputs, cells = layers->cells, width = layers->width;
  const int64_t panels = (up_to(inputs, PANEL) + up_to(width, PANEL) + up_to(cells, PANEL)) / PANEL;
  const int64_t blocks = (up_to(4 * up_to(cells, UNITS), BLOCK16) + up_to(width, BLOCK16)) / BLOCK16;
  const int packing = share_out(directions * panels, threads, [&](int64_t i) {
    now.pack_gradients(layers[i / panels], passes[i / panels], i % panels);
  });
  const int weighing = share_out(directions * blocks, threads, [&](int64_t i) {
    now.weight_gradients(layers[i / blocks], passes[i / blocks], i % blocks);
  });
  if (!passes->places) return packing | weighing;
  const int64_t shares = up_to(4 * up_to(cells, UNITS), BLOCK16) / BLOCK16;
  return packing | weighing | share_out(directions * shares, threads, [&](int64_t i) {
           now.share_gradients(layers[i / shares], passes[i / shares], i % shares);
         });
}

EXPORT int elmo_softmax16(const Softmax* given, int64_t threads) try {
  Softmax all = *given;
  const Bfloat16Kernels& now = *bfloat16();
  const int64_t words = up_to(all.words, PANEL), width = up_to(all.width, PANEL), panels = words / PANEL;
  // Positions whose errors are kept at once: 4 MB of them, or a few where there are many words.
  const int64_t fitting = (int64_t(1) << 21) / words / POSITIONS16 * POSITIONS16;
  all.chunk = std::min(up_to(all.positions, 2), std::max(POSITIONS16, fitting));
  const auto start = room<float>(words);
  const auto by_word = room<Pair>(words * width / 2), by_width = room<Pair>(words * width / 2);
  const auto errors = room<Pair>(words * all.chunk / 2);
  all.start = start.get(), all.by_word = by_word.get(), all.by_width = by_width.get(), all.errors = errors.get();
  int failed = share_out(panels + width / PANEL, threads, [&](int64_t p) { now.pack_softmax(all, p); });
  for (int64_t first = 0; first < all.positions; first += all.chunk) {
    const int64_t last = std::min(first + all.chunk, all.positions);
    failed |= share_out((last - first + POSITIONS16 - 1) / POSITIONS16, threads, [&](int64_t i) {
      const int64_t from = first + i * POSITIONS16;
      now.softmax_rows(all, first, from, std::min(from + POSITIONS16, last));
    });
    const int64_t groups = std::min(panels, 4 * threads);
    failed |= share_out(groups, threads, [&](int64_t i) {
      now.softmax_weights(all, first, last, i * panels / groups, (i + 1) * panels / groups);
    });
  }
  return failed;
} catch (const std::exception&) {
  return 1;
}

// Of each of the symmetric grams [matrices, size, size]; coefficients [count, 3].
EXPORT int elmo_polynomials(const float* grams, int64_t matrices, int64_t size, const float* coefficients,
                              int64_t count, float* out, int64_t threads) {
  return share_out(matrices, threads, [&](int64_t i) {
    bfloat16()->polynomials(grams + i * size * size, coefficients, count, size, out + i * size * size);
  });
}

// The library is loaded by ctypes; Windows' linker asks for this name all the same.
EXPORT void* PyInit__native() { return nullptr; }
