// How rows are parted between threads, and memory to be hashed.
#include "team.h"

namespace elmo {

std::vector<int64_t> cuts(const int32_t* lengths, int64_t rows, int64_t directions, int64_t threads) {
  constexpr int64_t STEP = 1;
  // As many tasks as threads; where directions leave a thread over, as many for each as there are threads.
  const int64_t wanted = threads % directions ? threads : threads / directions;
  const int64_t parts = std::max<int64_t>(1, std::min(wanted, rows / 8));
  auto within = [&](int64_t limit) {
    std::vector<int64_t> ends{0};
    int64_t cost = 0;
    for (int64_t r = 0; r < rows; r++) {
      if (cost && cost + lengths[r] > limit) ends.push_back(r), cost = 0;
      cost += cost ? lengths[r] : (1 + STEP) * lengths[r];  // the first is the longest: its steps are the part's
    }
    ends.push_back(rows);
    return ends;
  };
  int64_t low = 0, high = rows ? STEP * lengths[0] : 0;
  for (int64_t r = 0; r < rows; r++) high += lengths[r];
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if ((int64_t)within(middle).size() - 1 <= parts)
      high = middle;
    else
      low = middle + 1;
  }
  return within(high);
}

Pieces::Pieces(const Span* spans, int64_t count) : spans(spans), count(count) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t at = 0; at < spans[i].count; at += PIECE) places.emplace_back(i, at);
  parts.resize(places.size());
}

void Pieces::hash(int64_t piece) {
  const auto [i, at] = places[piece];
  parts[piece] = kernels().digest(spans[i].bytes + at, std::min(PIECE, spans[i].count - at), at);
}

void Pieces::join(uint64_t* digests) const {
  for (int64_t i = 0; i < count; i++) digests[i] = spans[i].count;
  for (size_t piece = 0; piece < places.size(); piece++) {
    uint64_t& all = digests[places[piece].first];
    all = (all ^ parts[piece]) * 0x94d049bb133111eb;
    all ^= all >> 31;
  }
}

}  // namespace elmo
