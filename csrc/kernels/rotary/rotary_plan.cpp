// rotary: the choice of a kernel, and the launch.
#include <limits>

#include "kernels/rotary/rotary.h"
#include "kittens/host/text.h"

namespace thunderkittens {

using kittens::host::text;

std::string why_unsupported(const rotary_problem& p) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (p.width > kRotaryMaxWidth) {
    return text("head dimension ", p.width, " is above ", kRotaryMaxWidth);
  }
  if (p.q.heads > kMost / 2 || p.k.heads > kMost / 2 ||
      (p.batch > 0 && p.tokens > kMost / p.batch)) {
    return text(p.batch, " batches of ", p.tokens, " tokens of ", p.q.heads, " and ", p.k.heads,
                " heads are too many");
  }
  return "";
}

rotary_plan plan(const rotary_problem& p, const device& d) {
  static const kittens::host::kernel_handle kernel(kRotary);
  refuse_unsupported(kernel.name(), p);
  return {p, kernel.on(d)};
}

void launch(const rotary_plan& plan, const rotary_tensors& t, const workspace&, stream s) {
  const rotary_problem& p = plan.problem;
  const auto operand = [](const rotary_heads& of, const void* in, void* out) {
    return rotary_operand{in, out, of.in_strides, of.out_strides, static_cast<int>(of.heads)};
  };
  plan.kernel.launch(
      {
          .q = operand(p.q, t.q, t.q_out),
          .k = operand(p.k, t.k, t.k_out),
          .cos = t.cos,
          .sin = t.sin,
          .offsets = t.offsets,
          .cu_seqlens = t.cu_seqlens,
          .cos_stride = p.cos_stride,
          .sin_stride = p.sin_stride,
          .table_rows = p.table_rows,
          .offset = p.offset,
          .sequences = p.sequences,
          .batch = static_cast<int>(p.batch),
          .tokens = static_cast<int>(p.tokens),
          .width = static_cast<int>(p.width),
          .rotated = static_cast<int>(p.rotated),
          .int64_offsets = p.int64_offsets,
          .int64_seqlens = p.int64_seqlens,
          .interleaved = p.interleaved,
          .conjugate = p.conjugate,
          .in_place = p.in_place,
          .type = p.type,
          .table_type = p.table_type,
      },
      s);
}

}  // namespace thunderkittens
