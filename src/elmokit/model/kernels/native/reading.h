// From the ids of words to the layers of sentences, in one call. Python's side of these structs is in structs.py.
#pragma once
#include "kernels.h"

namespace elmo {

// A packed model. F': features, P': width of x_k, both up to a panel's. L layers of each direction.
struct Model {
  const Filters* filters;
  int64_t filters_count;
  const float* bias;       // [F'], of the filters
  const Linear* highways;  // [highways_count, 2]: transform, carry
  int64_t highways_count;
  const Linear* projection;  // null: the features are x_k
  int64_t features;          // F'
  int32_t by_tanh, skip;     // the filters' activation, else relu; the LSTMs' skip connection
  const Layer* layers;       // [2, L]
  int64_t layers_count;      // L
  int64_t cells;             // H, as the states have it; Layer's is up to a multiple of eight
};

// New words, and sentences of words: each word a place in a table of vectors. B rows, T tokens of the longest.
struct Reading {
  const Model* model;
  const int32_t* ids;  // [M, C] of the new words
  int64_t words, length;
  float* table;  // [places, P']
  int64_t first;  // place of the first new word; the others follow
  int64_t stride;  // P'
  const int32_t* places;   // [B, T]
  const int32_t* lengths;  // [B], 2 or more
  int64_t rows, steps;
  const float* hidden;  // [2, L, B, P] before; null: zero
  const float* cell;    // [2, L, B, H]
  float* hidden_after;  // the same after each row's last token; null: not wanted
  float* cell_after;
  int64_t margin;  // tokens at each end of a row that are not given out: 0 or 1
  float* const* out;     // of each row, N its tokens that are given out: [1 + L, N, 2P], or mixed: [N, 2P]
  const int32_t* mixed;  // layers to be mixed
  const float* weights;  // of each
  int64_t mixed_count;   // 0: all layers are given out
  float factor, divisor;  // of the mix
  const Span* spans;  // hashed on the side
  int64_t spans_count;
  uint64_t* digests;
  int64_t threads;
};

int read(const Reading& reading);  // 0, or 1 where memory ran out

}  // namespace elmo
