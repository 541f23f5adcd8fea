// How rows are parted between threads, and memory to be hashed.
#include "team.h"

namespace elmo {

RowTasks::RowTasks(const Pass& pass, int64_t directions, int64_t threads) : directions(directions) {
  const int64_t parts = std::max<int64_t>(1, std::min(threads / directions, pass.rows / 8));
  int64_t total = 0, sum = 0;
  for (int64_t r = 0; r < pass.rows; r++) total += pass.lengths[r];
  for (int64_t r = 0; r < pass.rows && (int64_t)ends.size() < parts; r++) {
    sum += pass.lengths[r];
    if (sum * parts >= total * (int64_t)ends.size()) ends.push_back(r + 1);
  }
  if (ends.back() != pass.rows) ends.push_back(pass.rows);
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
