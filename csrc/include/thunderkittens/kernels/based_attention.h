// Based's linear attention: what to compute, where, and the launch. Plain C++ without torch.
//
//   y(i) = Σ(j ≤ i) A(i, j) v(j) / (Σ(j ≤ i) A(i, j) + eps),   A = 1 + s + s²/2,  s = scale · q(i)
//   · k(j)
//
// for each head; without `normalize` the sum alone. A(i, j) = φ(q(i)) · φ(k(j)) with the features
//
//   φ(x) = [1, √scale · x(e), scale · w(e, f) · x(e) x(f) for e ≤ f],   w = 1, of e = f 1/√2
//
// in this order, e before f: 1 + D + D (D + 1) / 2 of them. The state after token t is Σ(j ≤ t)
// φ(k(j)) v(j)ᵀ, and with `normalize` the sums Σ(j ≤ t) φ(k(j)).
#pragma once

#include <cstdint>
#include <string>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct based_attention_params;
struct based_attention_step_params;

// How far apart the neighbours of a dimension lie, in elements. The last dimension's are 1 apart.
struct based_attention_strides {
  int64_t batch, token, head;
};

constexpr int64_t based_attention_features(int64_t key_width) {
  return 1 + key_width + key_width * (key_width + 1) / 2;
}

// bf16 and fp16; key width 8 or 16, value width a multiple of 8; length at least 1; scale above 0.
//
// TMA reads q, k and v: their addresses are multiples of 16 bytes, and so are the strides of every
// dimension larger than 1.
struct based_attention_problem {
  int64_t batch, length, heads, key_width, value_width;
  based_attention_strides q_strides, k_strides, v_strides;
  double scale, eps;
  bool normalize;
  dtype type;
};

// F: based_attention_features(key_width).
struct based_attention_tensors {
  const void* q;                         // [batch, length, heads, key_width] of `type`
  const void* k;                         // the same
  const void* v;                         // [batch, length, heads, value_width] of `type`
  void* o;                               // the same, contiguous
  const float* initial_state = nullptr;  // [batch, heads, F, value_width]; or null: zeros
  const float* initial_sums = nullptr;   // [batch, heads, F]; with `normalize` alone
  float* final_state = nullptr;          // as the initial ones; or null: not wanted
  float* final_sums = nullptr;
};

// The gradients of a forward, of value widths up to 64. TMA reads do as it does v.
struct based_attention_backward_problem {
  based_attention_problem forward;
  based_attention_strides do_strides;
};

struct based_attention_backward_tensors {
  const void* q;
  const void* k;
  const void* v;
  const void* d_o;                       // as v
  const float* initial_state = nullptr;  // as the forward's
  const float* initial_sums = nullptr;
  const float* d_final_state = nullptr;  // as the states; or null: zeros
  const float* d_final_sums = nullptr;
  // Results, contiguous; each may be null: not wanted.
  void* dq = nullptr;                // [batch, length, heads, key_width] of `type`
  void* dk = nullptr;                // the same
  void* dv = nullptr;                // [batch, length, heads, value_width] of `type`
  float* d_initial_state = nullptr;  // as the states
  float* d_initial_sums = nullptr;
};

// Where heads are few, sequences are cut into segments. The workspace is a state for each; and of a
// backward with `normalize` two numbers a token.
struct based_attention_plan : plain_plan<based_attention_problem, based_attention_params> {
  int64_t segment_chunks = 0;  // chunks of 64 tokens
};
struct based_attention_backward_plan
    : plain_plan<based_attention_backward_problem, based_attention_params> {
  int64_t segment_chunks = 0;
};

// One token: the state and the sums take in φ(k) vᵀ and φ(k), and y is of what they are then.
//
// fp32, bf16 and fp16; key width 1 … 16, any value width. Elements of a state's row, and of a
// head's sums, are 1 apart.
struct based_attention_step_problem {
  struct strides {
    int64_t batch, head, element;
  };

  int64_t batch, heads, key_width, value_width;
  strides q_strides, k_strides, v_strides;
  int64_t state_stride, state_head_stride, state_row_stride;  // of a batch, a head, a feature
  int64_t sums_stride, sums_head_stride;
  double scale, eps;
  bool normalize;
  dtype type;  // of q, k, v and o
};

struct based_attention_step_tensors {
  const void* q;  // [batch, heads, key_width] of `type`
  const void* k;  // the same
  const void* v;  // [batch, heads, value_width] of `type`
  void* o;        // the same, contiguous
  float* state;   // [batch, heads, F, value_width], updated
  float* sums;    // [batch, heads, F], updated; with `normalize` alone
};

using based_attention_step_plan =
    plain_plan<based_attention_step_problem, based_attention_step_params>;

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const based_attention_step_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const based_attention_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const based_attention_backward_problem& problem);

// Throw error where there is no kernel, or none for the device.
KITTENS_EXPORT based_attention_plan plan(const based_attention_problem& problem, const device& d);
KITTENS_EXPORT based_attention_backward_plan plan(const based_attention_backward_problem& problem,
                                                  const device& d);

KITTENS_EXPORT based_attention_step_plan plan(const based_attention_step_problem& problem,
                                              const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const based_attention_step_plan& plan,
                           const based_attention_step_tensors& tensors, const workspace& work,
                           stream s);
KITTENS_EXPORT void launch(const based_attention_plan& plan, const based_attention_tensors& tensors,
                           const workspace& work, stream s);
KITTENS_EXPORT void launch(const based_attention_backward_plan& plan,
                           const based_attention_backward_tensors& tensors, const workspace& work,
                           stream s);

}  // namespace thunderkittens
