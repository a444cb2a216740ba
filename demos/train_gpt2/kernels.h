// The kernels of the trainer that are no op of thunderkittens: embeddings, digests, and the
// attention of float32. Plain C++: the device code is in kernels.cu, digest.cu and
// attention_fp32.cu.
//
// Matrices are contiguous rows, and start at multiples of 16 bytes; widths are multiples of 8.
#pragma once

#include <cstdint>

#include "thunderkittens/kernels/common.h"

namespace gpt2 {

using thunderkittens::dtype;
using thunderkittens::stream;

// A micro-batch of tokens, as the host has prepared it: `rows` = batch · length of each.
struct token_batch {
  const int *inputs, *targets;  // [rows]
  // Who needs which row: the distinct inputs, and for number i of them the rows in which it stands,
  // rows_of[starts[i]] … rows_of[starts[i + 1] − 1], ascending. So the gradient of the embedding
  // needs no atomics, and its sums have one order.
  const int *distinct, *tokens, *starts, *rows_of;  // [1], [rows], [rows + 1], [rows]

  static int64_t ints(int64_t rows) { return 5 * rows + 2; }
  static token_batch at(const int* data, int64_t rows) {
    return {data,
            data + rows,
            data + 2 * rows,
            data + 2 * rows + 1,
            data + 3 * rows + 1,
            data + 4 * rows + 2};
  }
};

struct embedding {
  int64_t batch, length, width;
  dtype type;
};

// x[b, t] = wte[inputs[b, t]] + wpe[t];   without wpe and dwpe, which may be null: no positions
void embed(const embedding& e, const token_batch& batch, const void* wte, const void* wpe, void* x,
           stream s);
// dwte[token] += Σ dx over its rows;   dwpe[t] = Σ_b dx[b, t], or the same added to it
void embed_backward(const embedding& e, const token_batch& batch, const void* dx, void* dwte,
                    void* dwpe, bool accumulate, stream s);

// The gradients of the biases of k and v, [width], of which no matrix has to be added up: k's bias
// adds the same to all scores of a row, which softmax does not see; v's comes whole to each row of
// the attention's result, for a row's weights add up to 1, so that its gradient is that of the bias
// behind `proj` [width, width], multiplied with it:   dk = 0,   dv = proj · dproj_bias
void key_value_bias_backward(dtype type, int64_t width, const void* proj, const void* dproj_bias,
                             void* dk, void* dv, stream s);

// to += from
void add(dtype type, int64_t count, const void* from, void* to, stream s);
// to[i] = Σ_part from[part, i], in float32 and in order; from: [parts, count]. Counts are multiples
// of 16 bytes.
void add_parts(dtype type, int64_t count, int64_t parts, const void* from, void* to, stream s);

// Σ parts, of 64 bits that run over, tells a matrix from any other.
struct matrix {
  const void* data;
  int64_t rows, width, stride;  // stride: elements between rows
  dtype type;
};
inline constexpr int64_t kDigestParts = 1 << 16;
void digest(const matrix& m, uint64_t* parts, stream s);

inline constexpr int64_t kMostHeadDim = 256;  // of both kinds of plain attention

// Causal attention in float32, for what the op's kernel does not take: exact and slow, a warp a
// row. q, dq: [batch, length, heads, head_dim], k, v, dk, dv: of key_heads, rows `stride` apart, as
// slices of a fused qkv; o, d_o: as q, contiguous; lse, delta: [batch, heads, length].
struct attention_fp32 {
  int64_t batch, length, heads, key_heads, head_dim, stride;
};
struct attention_fp32_tensors {
  const float *q, *k, *v;
  float *o, *lse;
  const float* d_o = nullptr;  // of the backward, as all below
  float *delta = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};
void attention_forward(const attention_fp32& p, const attention_fp32_tensors& t, stream s);
void attention_backward(const attention_fp32& p, const attention_fp32_tensors& t, stream s);

// o [heads, head_dim] of one token's q, over as many rows of k and v, [positions, key_heads,
// head_dim], as the device says: the token's own is the last.
struct cached_attention {
  int64_t heads, key_heads, head_dim;
  dtype type;
};
struct cached_tensors {
  const void *q, *k, *v;
  void* o;
  const int* keys;  // [1]
};
void attention_cached(const cached_attention& p, const cached_tensors& t, stream s);

}  // namespace gpt2
