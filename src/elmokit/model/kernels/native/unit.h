// One format by the processor's own products of words, in its own namespace: UNIT gives what it does.
#define LANES 16
#define ROWS 8
#include "linear.h"
#include "word_lstm.h"

namespace elmo {
const Precision* UNIT() {
  using namespace VARIANT;
  static const Precision precision = {word_forward<FORMAT>, linear<FORMAT>, highway<FORMAT>};
  return &precision;
}
}  // namespace elmo
