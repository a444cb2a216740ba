// Linear attention, forward and backward: what to compute, where, and the launch. Plain C++ without
// torch.
//
//   S(t) = e^g(t) S(t − 1) + w(t) k(t) v(t)ᵀ,   o(t) = scale · S(t)ᵀ q(t) + skip · v(t)
//
// for each head; head h reads head h / (heads / key_heads) of q and k. g, the logarithm of the
// decay, is at most 0, and the weight w at least; S(0 − 1) is the initial state, and the final one
// that of the last token.
#pragma once

#include <cstdint>
#include <string>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct linear_attention_decay_gradient_params;
struct linear_attention_params;
struct linear_attention_step_params;

// How far apart the neighbours of a dimension lie, in elements. The last dimension's are 1 apart.
struct linear_attention_strides {
  int64_t batch, token, head;
};

// What gates may be made of, as mamba2's are: a weight w = clamp(softplus(dt + bias), least, most)
// of each token and head, whose decay's logarithm is g = w · a.
struct linear_attention_steps {
  const void* dt = nullptr;  // [batch, length, heads] of `type`; or null: gates are given
  linear_attention_strides strides = {};
  const float* bias = nullptr;  // [heads]; or null: 0
  const float* a = nullptr;     // [heads], at most 0
  float least = 0, most = 0;
  bool softplus = false;
  dtype type = dtype::float32;

  constexpr int element_bytes() const { return type == dtype::float32 ? 4 : 2; }
};

// bf16 and fp16; widths 8, 16 … 128; length at least 1.
//
// TMA reads q, k and v: their addresses are multiples of 16 bytes, and so are the strides of every
// dimension larger than 1.
struct linear_attention_problem {
  int64_t batch, length, heads, key_heads, key_width, value_width;  // heads % key_heads == 0
  linear_attention_strides q_strides, k_strides, v_strides;
  linear_attention_strides decay_strides = {};  // any, 0 too
  linear_attention_strides weight_strides = {};
  double scale;
  dtype type;
  bool transposed_states = false;  // [batch, heads, value_width, key_width]
  // More than 0: so many sequences are packed one behind the other into one batch. States are then
  // those of [sequences, …]; what lies past the last sequence's end is not written.
  int64_t sequences = 0;
  bool int64_seqlens = false;  // else int32
  // The kernel makes gates of `steps`, in place of log_decay and weights: where makes_gates says
  // that there is one, and where dt of 16 bits lies so that the two heads from each even one on are
  // 4 aligned bytes.
  bool makes_gates = false;
};

struct linear_attention_tensors {
  const void* q;                         // [batch, length, key_heads, key_width] of `type`
  const void* k;                         // the same
  const void* v;                         // [batch, length, heads, value_width] of `type`
  void* o;                               // the same, contiguous
  const float* log_decay = nullptr;      // [batch, length, heads]; or null: no decay
  const float* initial_state = nullptr;  // [batch, heads, key_width, value_width]; or null: zeros
  float* final_state = nullptr;          // the same; or null: not wanted
  const float* weights = nullptr;        // [batch, length, heads]; or null: 1
  const float* skip = nullptr;           // [heads]; or null: 0
  const void* cu_seqlens = nullptr;      // [sequences + 1], where they start and end
  linear_attention_steps steps = {};
};

// The gradients of a forward. TMA reads do as it does v.
struct linear_attention_backward_problem {
  linear_attention_problem forward;
  linear_attention_strides do_strides;
  bool decay_gradient = false;  // wanted; with dq, dk and their dots
  // Tokens after which it is found anew: 256, or 128, for twice the memory and the smaller errors.
  int64_t anchor = 256;
};

struct linear_attention_backward_tensors {
  const void* q;
  const void* k;
  const void* v;
  const void* d_o;  // as v
  const float* log_decay = nullptr;
  const float* initial_state = nullptr;
  const float* d_final_state = nullptr;  // as the states; or null: zeros
  // Results, contiguous; each may be null: not wanted. dq and dk are those of each of `heads`: what
  // shares a key head is still to be added up.
  void* dq = nullptr;                // [batch, length, heads, key_width] of `type`
  void* dk = nullptr;                // the same
  void* dv = nullptr;                // [batch, length, heads, value_width] of `type`
  float* d_initial_state = nullptr;  // with dk or dv alone
  // q · dq and k · dk / w of each token and head, [batch, length, heads, (key_width + 63) / 64],
  // whose last dimension is still to be added up; with dq and with dk alone; or null. The latter is
  // the gradient of w.
  float* q_dots = nullptr;
  float* k_dots = nullptr;
  const float* weights = nullptr;
  const float* skip = nullptr;
  float* v_dots = nullptr;  // do · v, [batch, length, heads]: of skip; with dq alone; or null
  const void* cu_seqlens = nullptr;
  // With decay_gradient, [batch, length, heads], contiguous; 0 for a token of no sequence.
  float* d_log_decay = nullptr;
};

// How a sequence is cut: a block computes the outputs of a segment, and before that others find the
// state that each of its parts adds. In chunks of 64 tokens, of which segments are whole parts.
struct linear_attention_division {
  int64_t segment = 0, part = 0;
};

// The workspace holds the states of parts, where a sequence has more than one segment; and for the
// decays' gradient the state of every anchor, in bf16, widths rounded up to 64 or 128.
struct linear_attention_plan : plain_plan<linear_attention_problem, linear_attention_params> {
  linear_attention_division division;
  bool warp_specialized;  // more warpgroups a head, where the kernel makes gates of few heads
};
struct linear_attention_backward_plan
    : plain_plan<linear_attention_backward_problem, linear_attention_params> {
  linear_attention_division division;
  bound_kernel<linear_attention_decay_gradient_params> decay_gradient;
};

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const linear_attention_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const linear_attention_backward_problem& problem);

// Whether a device's kernels make gates of a problem's `steps`: of two heads of a group at a time.
KITTENS_EXPORT bool makes_gates(const linear_attention_problem& problem, const device& d);

// Throw error where there is no kernel, or none for the device.
KITTENS_EXPORT linear_attention_plan plan(const linear_attention_problem& problem, const device& d);
KITTENS_EXPORT linear_attention_backward_plan plan(const linear_attention_backward_problem& problem,
                                                   const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const linear_attention_plan& plan,
                           const linear_attention_tensors& tensors, const workspace& work,
                           stream s);
KITTENS_EXPORT void launch(const linear_attention_backward_plan& plan,
                           const linear_attention_backward_tensors& tensors, const workspace& work,
                           stream s);

// ---- One token ----------------------------------------------------------------------------------

// The strides of a tensor [batch, heads, width]: any, 0 and negative ones too.
struct linear_attention_step_strides {
  int64_t batch, head, element;
};

// One step of the recurrence, for each head of a batch: its state is updated, and o is of the new
// one. bf16, fp16 and fp32; key widths to 256.
struct linear_attention_step_problem {
  int64_t batch, heads, key_heads, key_width, value_width;  // heads % key_heads == 0
  int64_t states;                                           // batch, without indices
  linear_attention_step_strides q_strides, k_strides, v_strides;
  int64_t state_stride, state_head_stride, state_key_stride;  // its values are 1 apart
  int64_t decay_batch_stride = 0, decay_head_stride = 0;
  bool int64_indices = false;  // else int32
  double scale;
  dtype type;
};

struct linear_attention_step_tensors {
  const void* q;                        // [batch, key_heads, key_width] of `type`
  const void* k;                        // the same
  const void* v;                        // [batch, heads, value_width] of `type`
  void* o;                              // the same, contiguous
  float* state;                         // [states, heads, key_width, value_width]
  const float* log_decay = nullptr;     // [batch, heads]; or null: no decay
  const void* state_indices = nullptr;  // [batch]; or null: 0, 1, 2 …
};

using linear_attention_step_plan =
    plain_plan<linear_attention_step_problem, linear_attention_step_params>;

KITTENS_EXPORT std::string why_unsupported(const linear_attention_step_problem& problem);
KITTENS_EXPORT linear_attention_step_plan plan(const linear_attention_step_problem& problem,
                                               const device& d);
KITTENS_EXPORT void launch(const linear_attention_step_plan& plan,
                           const linear_attention_step_tensors& tensors, const workspace& work,
                           stream s);

}  // namespace thunderkittens
