// Character filters as sums of table rows: what a character gives at an offset is known beforehand.
#pragma once
#include "vector.h"

namespace elmo {
namespace VARIANT {

typedef uint8_t WideBytes __attribute__((vector_size(LANES), aligned(1), may_alias));

// How many windows of a word to look at: those inside the run of equal characters at its end (its padding) are all
// alike, so one of them is enough.
static inline int64_t windows_of(const int32_t* word, int64_t length, int64_t width) {
  int64_t run = length - 1;
  while (run > 0 && word[run - 1] == word[length - 1]) run--;
  return smaller(run, length - width) + 1;
}

// One panel's filters over one word. WIDTH 0: whatever the filters say; others are unrolled.
template <int WIDTH, bool KEEP>
static inline void convolve_word(const float* panel, const Filters& filters, const int32_t* word, int64_t windows,
                                 float* features, uint8_t* where) {
  const int64_t width = WIDTH ? WIDTH : filters.width, step = filters.characters * PANEL;
  Wide best[WIDES];
  WideInts at[WIDES];
  for (int i = 0; i < WIDES; i++) {
    best[i] = Wide{} - INFINITY;
    at[i] = WideInts{};
  }
  for (int64_t window = 0; window < windows; window++) {
    Wide sum[WIDES];
    const float* row = panel + int64_t(word[window]) * PANEL;
    for (int i = 0; i < WIDES; i++) sum[i] = load_wide(row + i * LANES);
    for (int64_t offset = 1; offset < width; offset++) {
      row = panel + offset * step + int64_t(word[window + offset]) * PANEL;
      for (int i = 0; i < WIDES; i++) sum[i] += load_wide(row + i * LANES);
    }
    for (int i = 0; i < WIDES; i++) {
      // The first of equal ones stays. So does a NaN, as in PyTorch's max: nothing hides a broken model.
      const WideInts more = (sum[i] > best[i]) | (sum[i] != sum[i]);
      best[i] = more ? sum[i] : best[i];
      if (KEEP) at[i] = more ? WideInts{} + int32_t(window) : at[i];
    }
  }
  for (int i = 0; i < WIDES; i++) {
    store_wide(features + i * LANES, best[i]);
    if (KEEP) *(WideBytes*)(where + i * LANES) = __builtin_convertvector(at[i], WideBytes);
  }
}

template <int WIDTH, bool KEEP>
static void convolve_words(const Filters& filters, const Words& words, int64_t first, int64_t last) {
  const Array<int64_t> windows(last - first);
  for (int64_t n = first; n < last; n++)
    windows[n - first] = windows_of(words.ids + n * words.length, words.length, filters.width);
  for (int64_t from = 0; from < filters.real; from += PANEL) {
    const float* panel = filters.table + from * filters.width * filters.characters;
    const int64_t real = smaller(PANEL, filters.real - from);
    for (int64_t n = first; n < last; n++) {
      const int32_t* word = words.ids + n * words.length;
      float* features = words.features + n * words.stride + filters.column + from;
      uint8_t* where = KEEP ? words.where + n * words.stride + filters.column + from : nullptr;
      if (real == PANEL) {
        convolve_word<WIDTH, KEEP>(panel, filters, word, windows[n - first], features, where);
      } else {  // the filters that complete the panel have no place among the features
        float some[PANEL];
        uint8_t at[PANEL];
        convolve_word<WIDTH, KEEP>(panel, filters, word, windows[n - first], some, at);
        memcpy(features, some, real * sizeof(float));
        if (KEEP) memcpy(where, at, real);
      }
    }
  }
}

template <int WIDTH>
static void convolve_panels_backward(const Filters& filters, const Words& words, int64_t first_panel,
                                 int64_t last_panel) {
  const int64_t width = WIDTH ? WIDTH : filters.width, step = filters.characters * PANEL;
  for (int64_t from = first_panel * PANEL; from < smaller(last_panel * PANEL, filters.real); from += PANEL) {
    float* panel = filters.table_gradient + from * width * filters.characters;
    const int64_t real = smaller(PANEL, filters.real - from);
    for (int64_t n = 0; n < words.words; n++) {
      const int32_t* word = words.ids + n * words.length;
      const float* gradient = words.features_gradient + n * words.stride + filters.column + from;
      const uint8_t* where = words.where + n * words.stride + filters.column + from;
      // About every second one is 0 after relu. No processor guesses which: find them without a branch.
      int32_t some[PANEL], count = 0;
      for (int32_t i = 0; i < real; i++) {
        some[count] = i;
        count += gradient[i] != 0;
      }
      for (int32_t k = 0; k < count; k++) {
        const int32_t i = some[k], *window = word + where[i];
        const float value = gradient[i];
        for (int64_t offset = 0; offset < width; offset++)
          panel[offset * step + int64_t(window[offset]) * PANEL + i] += value;
      }
    }
  }
}

// Calls CALL(width) with a width that the compiler knows, for those of the published models.
#define BY_WIDTH(width, CALL) \
  switch (width) {            \
    case 1: return CALL(1);   \
    case 2: return CALL(2);   \
    case 3: return CALL(3);   \
    case 4: return CALL(4);   \
    case 5: return CALL(5);   \
    case 6: return CALL(6);   \
    case 7: return CALL(7);   \
    default: return CALL(0);  \
  }

// The features of words [first, last).
static void convolve(const Filters& filters, const Words& words, int64_t first, int64_t last) {
#define KEEPING(width) convolve_words<width, true>(filters, words, first, last)
#define PLAIN(width) convolve_words<width, false>(filters, words, first, last)
  if (words.where) BY_WIDTH(filters.width, KEEPING)
  BY_WIDTH(filters.width, PLAIN)
#undef KEEPING
#undef PLAIN
}

// Adds to the gradient of the table's panels [first_panel, last_panel), word by word: always in the same order.
static void convolve_backward(const Filters& filters, const Words& words, int64_t first_panel, int64_t last_panel) {
#define BACKWARD(width) convolve_panels_backward<width>(filters, words, first_panel, last_panel)
  BY_WIDTH(filters.width, BACKWARD)
#undef BACKWARD
}
#undef BY_WIDTH

}  // namespace VARIANT
}  // namespace elmo
