// attention: what is chosen before a launch, and the launch.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/attention/attention.h"
#include "kittens/host/text.h"

namespace thunderkittens {
namespace {

using kittens::host::text;

// The kernel counts rows, keys, their sums and tiles of 64 rows in int.
constexpr int64_t kMostRows = int64_t{1} << 29;
constexpr int64_t kWidest = 256;
// It computes with scale · log₂e, softcap · log₂e and scale / softcap in float.
constexpr double kLeastScale = 1e-30, kMostScale = 1e30;
constexpr double kLeastCap = 1e-6, kMostCap = 1e6;
constexpr int64_t kMostTiles = std::numeric_limits<int>::max();

std::string why_too_large(const attention_forward_problem& p) {
  if (p.rows > kMostRows) return text(p.rows, " queries are above ", kMostRows);
  if (p.keys > kMostRows) return text(p.keys, " keys are above ", kMostRows);
  if (p.bounded_keys && p.batch > kMostRows / std::max<int64_t>(1, p.keys)) {
    return text(p.batch, " batches of ", p.keys, " keys, with bounds of their own, are above ",
                kMostRows);
  }
  const int64_t tiles = (p.rows + 63) / 64 + (p.packed ? p.sequences + 1 : 0);
  if (p.heads > kMostTiles || p.batch > kMostTiles || (tiles > 0 && p.heads > kMostTiles / tiles) ||
      (tiles * p.heads > 0 && p.batch > kMostTiles / (tiles * p.heads))) {
    return text(p.batch, " batches of ", p.heads, " heads of ", p.rows, " queries are too many");
  }
  return "";
}

std::string why_no_kernel(const attention_forward_problem& p) {
  if (p.type == dtype::float32) return "float32 is computed by torch";
  for (const int64_t width : {p.head_dim, p.value_dim}) {
    if (width <= 0 || width % 8 != 0 || width > kWidest) {
      return text("head dimension ", width, " is not one of 8, 16 … ", kWidest);
    }
  }
  if (!(p.scale >= kLeastScale && p.scale <= kMostScale)) {
    return text("scale ", p.scale, " is not within ", kLeastScale, " and ", kMostScale);
  }
  if (p.softcap > 0 && !(p.softcap >= kLeastCap && p.softcap <= kMostCap)) {
    return text("softcap ", p.softcap, " is not within ", kLeastCap, " and ", kMostCap);
  }
  return why_too_large(p);
}

// The backward's blocks of rows, and of keys, are counted in int, in the kernels and in their
// grids.
std::string why_too_many_blocks(const attention_forward_problem& p) {
  using layout = attention_backward_layout;
  const int64_t row_limit = kMostTiles / std::max<int64_t>(1, p.heads * p.batch);
  const int64_t key_limit = kMostTiles / std::max<int64_t>(1, p.key_heads * p.batch);
  const int64_t key_blocks = layout::blocks(p, p.keys, layout::kLeastKeys);
  const int64_t row_blocks = layout(p, kittens::host::kernel_kind::generic).row_blocks;
  if (row_blocks <= row_limit && key_blocks <= key_limit) return "";
  return text(p.batch, " batches of ", p.heads, " heads of ", p.rows, " queries and ", p.keys,
              " keys are too many");
}

// Whether some rows may see fewer keys than others.
bool is_masked(const attention_forward_problem& p) {
  return p.packed || p.bounded_keys || p.left < p.keys || p.right < p.rows;
}

void refuse_empty(std::string_view op, const attention_forward_problem& p) {
  if (p.rows >= 1 && p.keys >= 1) return;
  throw error(text(op, ": rows and keys must be at least 1, got ", p.rows, " and ", p.keys));
}

// TMA reads keys and values of all batches as rows of one tensor.
void refuse_strides(std::string_view op, const attention_forward_problem& p) {
  if (!p.bounded_keys) return;
  const auto refuse = [&](std::string_view name, const attention_strides& strides) {
    const char* const why = attention_flat_rows::why_not(p.batch, p.keys, strides);
    if (why != nullptr) throw error(text(op, ": ", name, " has bounds of its keys, but ", why));
  };
  refuse("k", p.k_strides);
  refuse("v", p.v_strides);
}

// Where dq, dk and dv lie.
struct gradient_strides {
  attention_strides dq, dk, dv;

  explicit gradient_strides(const attention_backward_problem& p)
      : dq(of(p.dq_strides, p.forward.rows, p.forward.heads, p.forward.head_dim)),
        dk(of(p.dk_strides, p.forward.keys, p.forward.key_heads, p.forward.head_dim)),
        dv(of(p.dv_strides, p.forward.keys, p.forward.key_heads, p.forward.value_dim)) {}

  static attention_strides of(const std::optional<attention_strides>& given, int64_t length,
                              int64_t heads, int64_t width) {
    return given ? *given : contiguous_strides(length, heads, width);
  }
  // They are stored as 16 bytes at a time; and dk and dv of all batches as rows of one tensor,
  // where each batch has bounds of its keys.
  void refuse(std::string_view op, const attention_forward_problem& p) const {
    const auto check = [&](std::string_view name, const attention_strides& strides, int64_t length,
                           int64_t heads, bool bounded) {
      const auto is_aligned = [](int64_t count, int64_t stride) {
        return count == 1 || (stride > 0 && stride % 8 == 0);
      };
      if (!is_aligned(p.batch, strides.batch) || !is_aligned(length, strides.row) ||
          !is_aligned(heads, strides.head)) {
        throw error(text(op, ": the strides of ", name, " must be multiples of 8, got (",
                         strides.batch, ", ", strides.row, ", ", strides.head, ")"));
      }
      if (bounded && p.batch > 1 && strides.batch != p.keys * strides.row) {
        throw error(text(op, ": of keys with bounds, the batches of ", name, " must lie ",
                         p.keys * strides.row, " elements apart, got ", strides.batch));
      }
    };
    check("dq", dq, p.rows, p.heads, false);
    check("dk", dk, p.keys, p.key_heads, p.bounded_keys);
    check("dv", dv, p.keys, p.key_heads, p.bounded_keys);
  }
};

}  // namespace

std::string why_unsupported(const attention_forward_problem& p) { return why_no_kernel(p); }
std::string why_unsupported(const attention_backward_problem& p) {
  for (const auto& why : {&why_no_kernel, &why_too_many_blocks}) {
    const std::string reason = why(p.forward);
    if (!reason.empty()) return reason;
  }
  return "";
}

attention_forward_plan plan(const attention_forward_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kAttentionForward);
  refuse_unsupported(kernel.name(), p);
  refuse_empty(kernel.name(), p);
  attention_forward_plan plan{{p, kernel.on(d)}, is_masked(p)};
  plan.workspace.counters = plan.dynamic_schedule ? 1 : 0;
  return plan;
}

attention_backward_plan plan(const attention_backward_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kAttentionBackward);
  refuse_unsupported(kernel.name(), p);
  refuse_empty(kernel.name(), p.forward);
  gradient_strides(p).refuse(kernel.name(), p.forward);
  attention_backward_plan plan{{p, kernel.on(d)}, is_masked(p.forward)};
  plan.workspace = {.bytes = attention_backward_layout(p.forward, kernel.kind_on(d)).bytes,
                    .counters = plan.dynamic_schedule ? 1 : 0};
  return plan;
}

void launch(const attention_forward_plan& plan, const attention_forward_tensors& t,
            const workspace& work, stream s) {
  const attention_forward_problem& p = plan.problem;
  refuse_strides(kAttentionForward.name, p);
  plan.kernel.launch(
      {
          .q = t.q,
          .k = t.k,
          .v = t.v,
          .o = t.o,
          .lse = t.lse,
          .sinks = t.sinks,
          .tile_counter = plan.dynamic_schedule ? work.counters : nullptr,
          .cu_seqlens_q = p.packed ? t.cu_seqlens_q : nullptr,
          .cu_seqlens_k = p.packed ? t.cu_seqlens_k : nullptr,
          .int64_seqlens_q = p.int64_seqlens_q,
          .int64_seqlens_k = p.int64_seqlens_k,
          .sequences = p.packed ? p.sequences : 0,
          .seqused_k = p.bounded_keys ? t.seqused_k : nullptr,
          .leftpad_k = p.bounded_keys ? t.leftpad_k : nullptr,
          .int64_seqused_k = p.int64_seqused_k,
          .int64_leftpad_k = p.int64_leftpad_k,
          .batch = p.batch,
          .rows = p.rows,
          .keys = p.keys,
          .heads = p.heads,
          .key_heads = p.key_heads,
          .head_dim = p.head_dim,
          .value_dim = p.value_dim,
          .q_strides = p.q_strides,
          .k_strides = p.k_strides,
          .v_strides = p.v_strides,
          .scale = static_cast<float>(p.scale),
          .softcap = static_cast<float>(p.softcap),
          .left = std::min(p.left, p.keys),
          .right = std::min(p.right, p.rows),
          .type = p.type,
      },
      s);
}

void launch(const attention_backward_plan& plan, const attention_backward_tensors& t,
            const workspace& work, stream s) {
  const attention_forward_problem& p = plan.problem.forward;
  refuse_strides(kAttentionBackward.name, p);
  const gradient_strides gradients(plan.problem);
  plan.kernel.launch(
      {
          .q = t.q,
          .k = t.k,
          .v = t.v,
          .o = t.o,
          .d_o = t.d_o,
          .lse = t.lse,
          .dlse = t.dlse,
          .sinks = t.sinks,
          .dq = t.dq,
          .dk = t.dk,
          .dv = t.dv,
          .dsinks = t.dsinks,
          .workspace = static_cast<std::byte*>(work.memory),
          .packed = p.packed,
          .cu_seqlens_q = t.cu_seqlens_q,
          .cu_seqlens_k = t.cu_seqlens_k,
          .int64_seqlens_q = p.int64_seqlens_q,
          .int64_seqlens_k = p.int64_seqlens_k,
          .sequences = p.packed ? p.sequences : 0,
          .seqused_k = p.bounded_keys ? t.seqused_k : nullptr,
          .leftpad_k = p.bounded_keys ? t.leftpad_k : nullptr,
          .int64_seqused_k = p.int64_seqused_k,
          .int64_leftpad_k = p.int64_leftpad_k,
          .tile_counter = plan.dynamic_schedule ? work.counters : nullptr,
          .batch = p.batch,
          .rows = p.rows,
          .keys = p.keys,
          .heads = p.heads,
          .key_heads = p.key_heads,
          .head_dim = p.head_dim,
          .value_dim = p.value_dim,
          .q_strides = p.q_strides,
          .k_strides = p.k_strides,
          .v_strides = p.v_strides,
          .o_strides = plan.problem.o_strides,
          .do_strides = plan.problem.do_strides,
          .dq_strides = gradients.dq,
          .dk_strides = gradients.dk,
          .dv_strides = gradients.dv,
          .scale = static_cast<float>(p.scale),
          .softcap = static_cast<float>(p.softcap),
          .left = std::min(p.left, p.keys),
          .right = std::min(p.right, p.rows),
          .type = p.type,
      },
      s);
}

}  // namespace thunderkittens
