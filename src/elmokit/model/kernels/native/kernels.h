// What the library does, as plain structs and pointers: no BLAS, nothing of PyTorch's. Python's side of these
// structs is in library.py.
#pragma once
#include <stdint.h>

namespace elmo {

constexpr int PANEL = 32;  // columns of a packed piece; eight units of four gates
constexpr int UNITS = PANEL / 4;

enum WeightFormat : int32_t { FLOAT32 = 0, FLOAT16 = 1, INT8 = 2, BFLOAT16 = 3, FORMATS = 4 };

// A packed matrix (packing.py): panels of 32 columns, contiguous along the sum. Of int8 and bfloat16, four or two that
// follow each other along the sum stand together in a word.
struct Packed {
  const void* values;
  const float* scale;     // of each column, where values are int8; else null
  const int32_t* offset;  // of each column, where values are int8: what the sums begin with
};

// One layer of one direction, packed (layers.py). H: cells, up to a multiple of eight. P: width, Pp: up to a panel's.
struct Layer {
  Packed input;                        // [4H / 32, I, 32]; columns by eight units: i f g o
  Packed hidden;                       // [4H / 32, P, 32]
  Packed projection;                   // [H / block, Pp / 32, block, 32]; of words [Pp / 32, H, 32]
  const float* bias;                   // [4H]
  const float* projection_transposed;  // [H / 32, P, 32], for the gradients
  const float* hidden_transposed;      // [4H / transposed_block, Pp / 32, transposed_block, 32]
  int64_t inputs, cells, width, block, transposed_block;
  float cell_clip, projection_clip;  // infinity: none
  int32_t format;
};

// A layer's run over a batch. Rows are sorted, the longest first; strides count floats. A row's step t is its token
// t, or length - 1 - t where it is read backwards. N is the sum of the lengths; step t's rows follow step t - 1's.
struct Pass {
  int64_t rows, steps;
  const int32_t* lengths;  // [rows]
  int32_t backwards, skip;
  int64_t spared;  // steps at each row's end that are not run
  const float* x;
  int64_t x_row, x_token;
  const int32_t* places;  // [rows, steps]: the token's row of x, `x_token` floats from one to the next; null: as above
  float* out;  // h, or h + x where it skips; what is padded is not written
  int64_t out_row, out_token;
  const uint8_t* begins;  // [rows, steps], by step; null: nothing begins
  float* hidden;          // [rows, P] before and after
  float* cell;            // [rows, H], as in Layer
  // Kept for the gradients, null where none are needed:
  float* gates;      // [N, 4H] activated; then, their gradients before activation
  float* cells;      // [N, H]
  float* activated;  // [N, H]: o tanh(c)
  float* projected;  // [N, P]: h
  // Gradients in:
  const float* out_gradient;
  int64_t gradient_row, gradient_token;
  // Gradients out; `hidden` and `cell` hold those of the state after, then of the state before.
  float* projected_gradient;  // [N, P], of h before its clip
  const float* start_cell;    // [rows, H], the state before
};

// Character filters of one width over words, by tables (convolution.py). N words, C characters each, F features.
struct Filters {
  const float* table;     // [filters / 32, width, characters, 32]: each character's share at each offset
  float* table_gradient;  // as `table`
  int64_t width, filters, characters;
  int64_t column;  // of the features where these filters begin; `filters` are padded to a panel's
  int64_t real;    // of `filters`, those that do not only fill a panel
};

struct Words {
  const int32_t* ids;  // [N, C]
  int64_t words, length;
  float* features;  // [N, F] the largest over the windows, without bias
  int64_t stride;
  uint8_t* where;  // [N, F] the window that it came from; null where no gradient is needed
  const float* features_gradient;
};

// Weights [outputs / 32, inputs, 32] and bias of a linear map; outputs are whole panels.
struct Linear {
  Packed weight;
  const float* bias;
  int64_t inputs, outputs;
  int32_t format;
};

// Bytes of a tensor, to be hashed.
struct Span {
  const uint8_t* bytes;
  int64_t count;
};

constexpr int BLOCK = 48;  // rows of a linear map that a thread takes at once: 2,048 inputs each stay in the cache

// What is done with weights of one format.
struct Precision {
  void (*forward)(const Layer& layer, const Pass& pass, int64_t first, int64_t last);
  void (*linear)(const Linear& layer, const float* x, float* out, int64_t first, int64_t last, int64_t from,
                 int64_t to);
  void (*highway)(const Linear& transform, const Linear& carry, const float* x, float* out, int64_t first,
                  int64_t last, int64_t from, int64_t to);
};

struct Kernels {
  const char* name;
  Precision precisions[FORMATS];
  void (*backward)(const Layer& layer, const Pass& pass, int64_t first, int64_t last);
  void (*convolve)(const Filters& filters, const Words& words, int64_t first, int64_t last);
  void (*convolve_backward)(const Filters& filters, const Words& words, int64_t first_panel, int64_t last_panel);
  void (*tanh)(const float* x, float* y, int64_t count);
  uint64_t (*digest)(const uint8_t* bytes, int64_t count, uint64_t seed);
  void (*activate)(float* x, const float* bias, int64_t count, bool by_tanh);
  void (*mix)(const float* const* layers, const float* weights, int64_t mixed, float factor, float divisor, float* out,
              int64_t count);

  void forward(const Layer& layer, const Pass& pass, int64_t first, int64_t last) const {
    precisions[layer.format].forward(layer, pass, first, last);
  }
  void linear(const Linear& layer, const float* x, float* out, int64_t first, int64_t last, int64_t from,
              int64_t to) const {
    precisions[layer.format].linear(layer, x, out, first, last, from, to);
  }
  void highway(const Linear& transform, const Linear& carry, const float* x, float* out, int64_t first, int64_t last,
               int64_t from, int64_t to) const {
    precisions[transform.format].highway(transform, carry, x, out, first, last, from, to);
  }
};

const Kernels& kernels();  // those in use

// From here on: products of bfloat16 operands, with sums in float32, for training (bfloat16.h). A Pair is two of them,
// neighbours along the sum; I', P' and D' are those up to a panel's, H' up to eight, H'' up to a panel's.
typedef uint32_t Pair;
constexpr int64_t BLOCK16 = 128;     // rows of a weight's gradient that a thread takes at once
constexpr int64_t CACHED16 = 98304;  // pairs of A that stay in the second-level cache
constexpr int64_t POSITIONS16 = 32;  // positions of a softmax that a thread takes at once

static inline int64_t up_to(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

// A matrix, its rows or its columns contiguous: strides count floats.
struct Operand {
  const float* values;
  int64_t rows, columns;
  int64_t row, column;  // from one to the next; one of them is 1
};

struct Product {
  Operand a, b;        // [M, K], [K, N]
  const float* bias;   // [N] or null
  float* c;            // [M, N]
  int64_t stride;      // of its rows
  Pair* packed;        // room for B: [N' / 32, (K + 1) / 2, 32]
  int32_t added;       // to what is in C, where there is no bias; else C is written
  int32_t symmetric;   // B is A', and the one half of C is copied from the other
};

struct Layer16 {
  const float *input_weight, *hidden_weight, *bias, *projection_weight;  // the model's: [4H, I], [4H, P], [4H], [P, H]
  float* start;                 // [4H'] the bias at run time, columns as in Layer
  Pair* gates;                  // [4H' / 32, (I' + P') / 2, 32]
  Pair* projection;             // [P' / 32, H' / 2, 32]
  Pair* projection_transposed;  // [H'' / 32, P' / 2, 32]
  Pair* gates_transposed;       // [(I' + P') / 32, 4H' / 2, 32]
  int64_t inputs, cells, width;
  float forget_bias, cell_clip, projection_clip;
};

// gates, cells and projected of the pass are kept as there, activated is not.
struct Pass16 {
  Pass pass;
  int64_t tokens;                // N
  uint16_t* inputs;              // [N, I' + P']: x, and h of the step before
  uint16_t* activated;           // [N, H']
  uint16_t* gates_gradient;      // [N, 4H'], before activation
  uint16_t* projected_gradient;  // [N, P']
  Pair* inputs_packed;           // [(I' + P') / 32, (N + 1) / 2, 32]
  Pair* activated_packed;        // [H'' / 32, (N + 1) / 2, 32]
  float* x_gradient;             // [rows, steps, I], zero where padded
  // Where x is given by places, I is 0, and in place of x there is its share of the gates, of each distinct one once:
  const int64_t* places;     // [rows, steps], of each x among the M distinct ones; or null
  int64_t distinct;          // M
  const float* shares;       // [M, 4H]
  float* shares_gradient;    // [M, 4H]
  float *input_weight_gradient, *hidden_weight_gradient, *bias_gradient, *projection_weight_gradient;  // as the weights
};

// C words, N positions, and the map of width D that they share.
struct Softmax {
  const float* h;          // [N, D]
  const float* weight;     // [C, D]
  const float* bias;       // [C]
  const float* hidden;     // [C']: 0, or -infinity for a word that only those see whose target it is; null: none is
  const int64_t* targets;  // [N]
  int64_t positions, words, width;
  double* losses;          // [N]
  float *h_gradient, *weight_gradient, *bias_gradient;
  // Room of the library's own:
  int64_t chunk;           // positions at once, an even number
  float* start;            // [C']
  Pair* by_word;           // [C' / 32, D' / 2, 32]
  Pair* by_width;          // [D' / 32, C' / 2, 32]
  Pair* errors;            // [C' / 32, chunk / 2, 32]
};

// A highway layer (char_encoder.py), element by element: N rows, F features.
struct Highway16 {
  const float* x;    // [N, F]
  float* transform;  // [N, F] before its relu; then, its gradient
  float* carry;      // [N, F] before its sigmoid; then after it; then, the gradient of what was before
  float* out;        // [N, F]
  const float* out_gradient;
  float* x_gradient;                                        // [N, F] by what is carried on
  float *transform_bias_gradient, *carry_bias_gradient;  // [F]
  int64_t rows, width;
};

struct Bfloat16Kernels {
  void (*pack)(const Product& product, int64_t from, int64_t to);
  void (*multiply)(const Product& product, int64_t first, int64_t last);
  void (*pack_layer)(const Layer16& layer, int64_t panel);
  void (*forward)(const Layer16& layer, const Pass16& pass, int64_t first, int64_t last);
  void (*backward)(const Layer16& layer, const Pass16& pass, int64_t first, int64_t last);
  void (*pack_gradients)(const Layer16& layer, const Pass16& pass, int64_t panel);
  void (*weight_gradients)(const Layer16& layer, const Pass16& pass, int64_t block);
  void (*share_gradients)(const Layer16& layer, const Pass16& pass, int64_t block);
  void (*pack_softmax)(const Softmax& softmax, int64_t panel);
  void (*softmax_rows)(const Softmax& softmax, int64_t chunk, int64_t first, int64_t last);
  void (*softmax_weights)(const Softmax& softmax, int64_t first, int64_t last, int64_t from, int64_t to);
  void (*mirror)(const Product& product);
  void (*highway)(const Highway16& highway, int64_t first, int64_t last);
  void (*highway_backward)(const Highway16& highway, int64_t from, int64_t to);
  void (*polynomials)(const float* gram, const float* coefficients, int64_t count, int64_t size, float* out);
};

const Bfloat16Kernels* bfloat16_kernels();  // null where the compiler knows none

// With the processor's own products of words: null where the compiler knows none. They need AVX-512 F, BW and VL too.
const Precision* vdpbf16ps();
const Precision* vpdpbusd();

const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512f_kernels();

static inline float from_half(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16, rest = half & 0x7fff;
  union { uint32_t bits; float value; } all;
  if (rest >= 0x7c00) {
    all.bits = 0x7f800000u | (rest & 0x3ff) << 13;
  } else {
    all.bits = rest << 13;            // the exponent is off by 127 - 15, which the product puts right,
    all.value *= 5.192296858534828e33f;  // 2 ** 112; subnormal halves too
  }
  all.bits |= sign;
  return all.value;
}

}  // namespace elmo
