// What every time loop needs, whatever the format of its weights: which rows there are at each step, and clips.
#pragma once
#include "vector.h"

namespace elmo {
namespace VARIANT {

typedef Array<float> Floats;
typedef Array<float*> Rows;

struct Times {  // which rows there are at each step
  Times(const Pass& pass, int64_t first, int64_t last) : rows(pass.steps), offsets(pass.steps) {
    int64_t n = pass.rows, offset = 0;
    for (steps = 0; steps < pass.steps; steps++) {
      while (n > 0 && pass.lengths[n - 1] - pass.spared <= steps) n--;
      if (n <= first) break;
      rows[steps] = int(smaller(last, n) - first);
      offsets[steps] = offset + first;
      offset += n;
    }
  }
  int64_t steps;
  Array<int> rows;         // of [first, last), at step t
  Array<int64_t> offsets;  // the first of them among the N of all rows
};

static inline int64_t token_at(const Pass& pass, int64_t row, int64_t t) {
  return pass.backwards ? pass.lengths[row] - 1 - t : t;
}

// A gradient passes a clip where the value is within it.
static inline Eight within(Eight gradient, Eight value, float clip) {
  const Eight bound = all(clip);
  return (value < bound) & (value > -bound) ? gradient : Eight{};
}

}  // namespace VARIANT
}  // namespace elmo
