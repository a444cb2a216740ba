// Hedgehog attention: softmax over a window, linear attention by learned features before it. What
// to compute, where, and the launch. Plain C++ without torch.
//
//   φ(x) = [softmax(x W), softmax(−x W)]                of q by its map, of k by its own
//   a(i, j) = beta · exp(s(i, j) − max s(i, ·))         j in i's window, s = q kᵀ / √head_dim
//           = alpha · φ(q(i)) · φ(k(j))                 j before it
//   y(i) = Σ(j) a(i, j) v(j) / Σ(j) a(i, j)
//
// for each head. Queries come in blocks of 64; a block's window is the 64 keys before it, and its
// own up to each query. The state is what lies before: Σ φ(k) vᵀ and Σ φ(k).
#pragma once

#include <cstdint>
#include <string>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct hedgehog_attention_params;
struct hedgehog_attention_backward_params;
struct hedgehog_attention_step_params;

// How far apart the neighbours of a dimension lie, in elements. The last dimension's are 1 apart.
struct hedgehog_attention_strides {
  int64_t batch, token, head;
};

// bf16 and fp16; head_dim and value_dim of 8, 16 … 128, maps to 64 columns; length at least 1.
//
// TMA reads q, k and v: their addresses are multiples of 16 bytes, and so are the strides of every
// dimension larger than 1.
struct hedgehog_attention_problem {
  int64_t batch, length, heads, head_dim, value_dim, features;  // features: columns of a map
  bool has_window;  // k and v begin with the 64 tokens before the first query
  hedgehog_attention_strides q_strides, k_strides, v_strides;
  dtype type;
};

struct hedgehog_attention_tensors {
  const void* q;       // [batch, length, heads, head_dim] of `type`
  const void* k;       // [batch, length, or length + 64 with a window, heads, head_dim] of `type`
  const void* v;       // the same with value_dim
  const void* q_map;   // [heads, head_dim, features] of `type`, contiguous
  const void* k_map;   // the same
  const float* alpha;  // [heads]
  const float* beta;   // [heads]
  void* y;             // [batch, length, heads, value_dim] of `type`, contiguous
  // Of each sequence the first row of k and v that exists, 0 … 64, where they begin with a window;
  // or null: all do.
  const int* first = nullptr;          // [batch]
  const float* initial_kv = nullptr;   // [batch, heads, 2 features, value_dim]; or null: zeros
  const float* initial_sum = nullptr;  // [batch, heads, 2 features]; or null: zeros
  // The state of all keys but the last 64; both null: not wanted.
  float* final_kv = nullptr;
  float* final_sum = nullptr;
};

// Where heads are few, sequences are cut into segments, and all but the last of those into parts.
// The workspace is a state for each part.
struct hedgehog_attention_plan : plain_plan<hedgehog_attention_problem, hedgehog_attention_params> {
  int64_t segment_blocks = 0;  // of 64 tokens
  int64_t part_blocks = 0;
};

// Of sequences that begin: without a window, or a state, before them.
struct hedgehog_attention_backward_problem {
  hedgehog_attention_problem forward;
  hedgehog_attention_strides dy_strides;  // as those of q
};

// Results are contiguous, and null where they are not wanted.
struct hedgehog_attention_backward_tensors {
  const void* q;       // as in hedgehog_attention_tensors
  const void* k;       // [batch, length, heads, head_dim] of `type`
  const void* v;       // [batch, length, heads, value_dim] of `type`
  const void* q_map;   // contiguous, as …
  const void* k_map;   // the same
  const float* alpha;  // [heads]
  const float* beta;   // [heads]
  const void* dy;      // [batch, length, heads, value_dim] of `type`
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  void* dq_map = nullptr;
  void* dk_map = nullptr;
  float* dalpha = nullptr;
  float* dbeta = nullptr;
};

// The workspace has four numbers a token; and a state for each block of 64 tokens, in `type`, or of
// Hopper's kernel, where sequences are cut into runs, one for each of their parts, in float32.
struct hedgehog_attention_backward_plan
    : plain_plan<hedgehog_attention_backward_problem, hedgehog_attention_backward_params> {
  int64_t run_blocks = 0;         // blocks of tokens of a block of threads
  int64_t part_blocks = 0;        // … of one that finds a state
  bool has_block_states = false;  // else states of runs
};

// One token after others. Its window is that of the last 64 tokens, itself among them; the token
// before those enters the state. Any type; widths to 256, maps to 128 columns.
struct hedgehog_attention_step_problem {
  int64_t batch, heads, head_dim, value_dim, features;
  struct strides {
    int64_t batch, head;
  } q_strides, k_strides, v_strides;
  dtype type;
};

// All but q, k and v contiguous.
struct hedgehog_attention_step_tensors {
  float* kv_state;        // [batch, heads, 2 features, value_dim]: updated, as …
  float* k_state;         // [batch, heads, 2 features]
  void* k_cache;          // [batch, 64, heads, head_dim] of `type`: token t in place t % 64
  void* v_cache;          // [batch, 64, heads, value_dim] of `type`
  const int64_t* length;  // [batch], tokens before this one; the caller adds 1 afterwards
  const void* q;          // [batch, heads, head_dim] of `type`
  const void* k;          // the same
  const void* v;          // [batch, heads, value_dim] of `type`
  const void* q_map;      // [heads, head_dim, features] of `type`
  const void* k_map;      // the same
  const float* alpha;     // [heads]
  const float* beta;      // [heads]
  void* y;                // [batch, heads, value_dim] of `type`
};

using hedgehog_attention_step_plan =
    plain_plan<hedgehog_attention_step_problem, hedgehog_attention_step_params>;

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const hedgehog_attention_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const hedgehog_attention_backward_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const hedgehog_attention_step_problem& problem);

// Throw error where there is no kernel, or none for the device.
KITTENS_EXPORT hedgehog_attention_plan plan(const hedgehog_attention_problem& problem,
                                            const device& d);
KITTENS_EXPORT hedgehog_attention_backward_plan
plan(const hedgehog_attention_backward_problem& problem, const device& d);
KITTENS_EXPORT hedgehog_attention_step_plan plan(const hedgehog_attention_step_problem& problem,
                                                 const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const hedgehog_attention_plan& plan,
                           const hedgehog_attention_tensors& tensors, const workspace& work,
                           stream s);
KITTENS_EXPORT void launch(const hedgehog_attention_backward_plan& plan,
                           const hedgehog_attention_backward_tensors& tensors,
                           const workspace& work, stream s);
KITTENS_EXPORT void launch(const hedgehog_attention_step_plan& plan,
                           const hedgehog_attention_step_tensors& tensors, const workspace& work,
                           stream s);

}  // namespace thunderkittens
