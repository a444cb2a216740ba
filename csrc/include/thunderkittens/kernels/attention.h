// attention, forward and backward: what to compute, where, and the launch. Plain C++ without torch.
//
//   o = softmax(scale · q kᵀ, masked) v,   lse = log Σ exp(scale · q kᵀ, masked),   per query row
//
//   p = exp(scale · q kᵀ − lse, masked),   delta = Σ do ∘ o − dlse, per row,
//   ds = p ∘ (do vᵀ − delta),   dq = scale · ds k,   dk = scale · dsᵀ q,   dv = pᵀ do,
//   (with a softcap: ds ∘ (1 − tanh²) of what it caps)
//   dsinks = −Σ exp(sink − lse) · delta, over batches and rows
//
//   const auto planned = plan(attention_forward_problem{.batch = 2, .rows = 4096, .keys = 4096,
//       .heads = 32, .key_heads = 8, .head_dim = 128, .value_dim = 128, .q_strides = …,
//       .k_strides = …, .v_strides = …, .scale = 0.088, .right = 0, .type = dtype::bfloat16}, d);
//   launch(planned, {.q = q, .k = k, .v = v, .o = o, .lse = lse}, {nullptr, counter}, stream);
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "thunderkittens/kernels/common.h"

namespace thunderkittens {

struct attention_forward_params;
struct attention_backward_params;

// How far apart the neighbours of a dimension lie, in elements. The last dimension's are 1 apart.
struct attention_strides {
  int64_t batch, row, head;
  bool operator==(const attention_strides&) const = default;
};

// bf16 and fp16; head dimensions 8, 16 … 256; scale 1e-30 … 1e30; softcap 0 or 1e-6 … 1e6.
//
// TMA reads q, k and v: their addresses are multiples of 16 bytes, and so are the strides of every
// dimension larger than 1.
struct attention_forward_problem {
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  int64_t batch, rows, keys, heads, key_heads, head_dim, value_dim;  // heads % key_heads == 0
  attention_strides q_strides, k_strides, v_strides;
  double scale;
  double softcap = 0;  // score = softcap · tanh(score / softcap); 0: score as it is
  // Row i sees the keys from i + keys − rows − left to i + keys − rows + right: right is 0 where it
  // is causal. At least 0.
  int64_t left = kAll, right = kAll;
  // Packed sequences: batch is 1, and rows and keys are those of all together. Sequence i has the
  // rows from cu_seqlens_q[i] to cu_seqlens_q[i + 1], and keys likewise; numbers that decrease or
  // exceed the tensor's rows count as the nearest that do not. Rows of no sequence see no key.
  bool packed = false;
  int64_t sequences = 0;
  bool int64_seqlens_q = false, int64_seqlens_k = false;  // else int32
  // Whether seqused_k or leftpad_k is given, of batches that are not packed: then the keys of batch
  // b are those from leftpad_k[b] to seqused_k[b], and row i's diagonal is i + seqused_k[b] − rows.
  // A seqused_k outside of 0 … keys, or a leftpad_k outside of 0 … seqused_k, counts as the nearest
  // number inside. The batch strides of k and v are then multiples of their row strides.
  bool bounded_keys = false;
  bool int64_seqused_k = false, int64_leftpad_k = false;  // else int32
  dtype type;
};

struct attention_forward_tensors {
  const void* q;                       // [batch, rows, heads, head_dim] of `type`
  const void* k;                       // [batch, keys, key_heads, head_dim] of `type`
  const void* v;                       // [batch, keys, key_heads, value_dim] of `type`
  void* o;                             // [batch, rows, heads, value_dim] of `type`, contiguous
  float* lse = nullptr;                // [batch, heads, rows], natural logarithm; or null
  const float* sinks = nullptr;        // [heads]: a logit more in each row's denominator; or null
  const void* cu_seqlens_q = nullptr;  // [sequences + 1], where packed
  const void* cu_seqlens_k = nullptr;
  const void* seqused_k = nullptr;  // [batch], where bounded_keys: one of them at least
  const void* leftpad_k = nullptr;
};

struct attention_forward_plan : plain_plan<attention_forward_problem, attention_forward_params> {
  // Tiles differ in length under a mask: blocks take them by a tile counter, longest first. Else
  // the schedule is static.
  bool dynamic_schedule = false;
};

// The gradients of a forward: all that its kernels take. TMA reads do as it does q. o's address and
// strides are multiples of 16 bytes, too, and so are those of dq, dk and dv: of three that are
// parts of one row, as those of a fused qkv are, each has the row's stride.
struct attention_backward_problem {
  attention_forward_problem forward;
  attention_strides o_strides, do_strides;
  // None: contiguous. Where bounded_keys, the batches of dk and dv lie `keys` rows apart.
  std::optional<attention_strides> dq_strides = {}, dk_strides = {}, dv_strides = {};
};

struct attention_backward_tensors {
  const void* q;                 // [batch, rows, heads, head_dim] of `type`
  const void* k;                 // [batch, keys, key_heads, head_dim] of `type`
  const void* v;                 // [batch, keys, key_heads, value_dim] of `type`
  const void* o;                 // [batch, rows, heads, value_dim] of `type`
  const void* d_o;               // the same
  const float* lse;              // [batch, heads, rows], contiguous
  const float* dlse = nullptr;   // the same, or null: zeros
  const float* sinks = nullptr;  // [heads], or null
  // Results, as q, k and v in shape, of the problem's strides. Those of q and of the sinks may be
  // null: not wanted. dk and dv are always computed.
  void* dq = nullptr;
  void* dk;
  void* dv;
  float* dsinks = nullptr;
  const void* cu_seqlens_q = nullptr;  // [sequences + 1], where packed
  const void* cu_seqlens_k = nullptr;
  // [batch], where bounded_keys. Of keys that do not exist dk and dv are not written: give zeros.
  const void* seqused_k = nullptr;
  const void* leftpad_k = nullptr;
};

// The workspace is a copy of dq in 32 bits, of 64, 128 or 256 columns, 12 bytes for each row of q,
// and 16 for 128 rows of k.
struct attention_backward_plan : plain_plan<attention_backward_problem, attention_backward_params> {
  bool dynamic_schedule = false;  // as the forward's
};

// Why no kernel computes this, whatever the device; "" when one does.
KITTENS_EXPORT std::string why_unsupported(const attention_forward_problem& problem);
KITTENS_EXPORT std::string why_unsupported(const attention_backward_problem& problem);

// Throw error where there is no kernel, or none for the device, and where there are no rows or no
// keys.
KITTENS_EXPORT attention_forward_plan plan(const attention_forward_problem& problem,
                                           const device& d);
KITTENS_EXPORT attention_backward_plan plan(const attention_backward_problem& problem,
                                            const device& d);

// On the plan's device, which has to be the current one.
KITTENS_EXPORT void launch(const attention_forward_plan& plan,
                           const attention_forward_tensors& tensors, const workspace& work,
                           stream s);
KITTENS_EXPORT void launch(const attention_backward_plan& plan,
                           const attention_backward_tensors& tensors, const workspace& work,
                           stream s);

}  // namespace thunderkittens
