// 64 bits that stand for all bytes of a piece of memory, at the speed of memory: have weights changed since?
//
// Words of 64 bits go to eight lanes in turn. A lane has the sum of its words, so that no change of one word is
// missed, and the sum of the products of their halves, each word with a key of its place: order counts too.
#pragma once
#include "vector.h"

namespace elmo {
namespace VARIANT {

typedef uint64_t WideWords __attribute__((vector_size(4 * LANES)));
typedef uint64_t LooseWideWords __attribute__((vector_size(4 * LANES), aligned(1), may_alias));

constexpr int DIGEST_LANES = 8, LINE = 64;                             // bytes of all lanes: the same for every variant
constexpr int VECTORS = LINE / (4 * LANES), WORDS = LANES / 2;         // of a line, of a vector
constexpr uint64_t STEP = 0x9e3779b97f4a7c15, MIX = 0xbf58476d1ce4e5b9;  // odd, their bits without a pattern

// The low half of each word times its high half.
static inline WideWords halves(WideWords x) {
#if defined(ELMO_F16C) && LANES == 16
  return (WideWords)_mm512_maskz_mul_epu32(0xff, (__m512i)x, (__m512i)(x >> 32));
#elif defined(ELMO_F16C) && LANES == 8
  return (WideWords)_mm256_mul_epu32((__m256i)x, (__m256i)(x >> 32));
#elif defined(ELMO_X86) && LANES == 4
  return (WideWords)_mm_mul_epu32((__m128i)x, (__m128i)(x >> 32));
#else
  return (x & 0xffffffff) * (x >> 32);
#endif
}

static uint64_t digest(const uint8_t* bytes, int64_t count, uint64_t seed) {
  WideWords sum[VECTORS], product[VECTORS], key[VECTORS];
  for (int v = 0; v < VECTORS; v++) {
    sum[v] = product[v] = WideWords{};
    for (int w = 0; w < WORDS; w++) key[v][w] = (seed + v * WORDS + w + 1) * MIX;
  }
  auto add = [&](const uint8_t* line) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
      const WideWords words = *(const LooseWideWords*)(line + v * 4 * LANES);
      sum[v] += words;
      product[v] += halves(words ^ key[v]);
      key[v] += STEP;
    }
  };
  for (; count >= LINE; count -= LINE, bytes += LINE) add(bytes);
  uint8_t rest[LINE] = {0};
  memcpy(rest, bytes, count);
  if (count) add(rest);
  uint64_t all = seed;
  for (int lane = 0; lane < 2 * DIGEST_LANES; lane++) {
    const WideWords* part = lane < DIGEST_LANES ? sum : product;
    const int word = lane % DIGEST_LANES;
    all = (all ^ part[word / WORDS][word % WORDS]) * MIX;
    all ^= all >> 29;
  }
  return all;
}

}  // namespace VARIANT
}  // namespace elmo
