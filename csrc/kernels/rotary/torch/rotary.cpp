// rotary as torch ops: schemas, checks, outputs, backends, fakes. Autograd is in
// rotary_autograd.cpp.
//
//   (x1, x2) → (x1 cos − x2 sin, x1 sin + x2 cos)   for each pair of the first R elements of a head
//
// Two ops: `rotary` gives new tensors, `rotary_` writes q and k themselves. With `conjugate` they
// turn back, which is their gradient. No autocast rule: q and k keep their dtype.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/by_hand.h"
#include "binding/launch.h"
#include "binding/layout.h"
#include "binding/overlap.h"
#include "kernels/rotary/rotary.h"
#include "kernels/rotary/torch/rotary_call.hpp"

namespace thunderkittens {
namespace {

using at::Tensor;
using c10::SymInt;
using two_tensors = std::tuple<Tensor, Tensor>;

// ---- Checks -------------------------------------------------------------------------------------

constexpr arguments kBatchArguments({
    tensor("q", dtype_rule::floating, "B,S,Hq,D"),
    tensor("k", dtype_rule::same, "B,S,Hk,D"),
    tensor("cos", dtype_rule::same_or_float32, "T,P"),
    tensor("sin", dtype_rule::same_or_float32, "T,P"),
    integer("offset", 0),
    optional(tensor("offsets", dtype_rule::index, "B")),
    boolean("interleaved"),
    boolean("conjugate"),
});
constexpr arguments kPackedArguments({
    tensor("q", dtype_rule::floating, "N,Hq,D"),
    tensor("k", dtype_rule::same, "N,Hk,D"),
    tensor("cos", dtype_rule::same_or_float32, "T,P"),
    tensor("sin", dtype_rule::same_or_float32, "T,P"),
    integer("offset", 0),
    optional(tensor("offsets", dtype_rule::index, "B")),
    boolean("interleaved"),
    boolean("conjugate"),
    tensor("cu_seqlens", dtype_rule::index, "B1"),
    integer("max_seqlen", 0),
});
constexpr argument_table kBatchTable = kBatchArguments.table("rotary");
constexpr argument_table kPackedTable = kPackedArguments.table("rotary", "packed");
const enter_arguments enter_batch(kBatchTable), enter_packed(kPackedTable);

const kernel kKernel("rotary", kRotary);

void check_packing(const rotary_call& c) {
  const SymInt starts = c.cu_seqlens->sym_numel();
  TORCH_CHECK_VALUE(starts.sym_ge(1).expect_true(__FILE__, __LINE__),
                    "rotary: cu_seqlens must have shape [sequences + 1], got [0]");
  if (!c.offsets) return;
  const SymInt sequences = c.offsets->sym_numel();
  TORCH_CHECK_VALUE(starts.sym_eq(sequences + 1).expect_true(__FILE__, __LINE__),
                    "rotary: offsets must have shape [", starts - 1,
                    "] (cu_seqlens.size(0) - 1), got [", sequences, "]");
}

// a + b, or both where an int64 does not hold it.
std::string text_of_sum(const SymInt& a, const SymInt& b) {
  const std::optional<int64_t> x = a.maybe_as_int(), y = b.maybe_as_int();
  int64_t sum = 0;
  const bool wraps = x && y && __builtin_add_overflow(*x, *y, &sum);
  return wraps ? c10::str(a, " + ", b) : c10::str(a + b);
}

void check_tables(const rotary_call& c) {
  TORCH_CHECK_TYPE(c.cos.scalar_type() == c.sin.scalar_type(),
                   "rotary: sin must have the dtype of cos, ", c.cos.scalar_type(), ", got ",
                   c.sin.scalar_type());
  const SymInt width = c.q.sym_size(-1), pairs = c.cos.sym_size(1);
  TORCH_CHECK_VALUE((pairs * 2).sym_le(width).expect_true(__FILE__, __LINE__),
                    "rotary: cos.size(1) must be at most ", width / 2,
                    " (half of q.size(-1)), got ", pairs);
  // A token that cu_seqlens leaves out needs a row too.
  const SymInt length = c.cu_seqlens ? c.max_seqlen->max(SymInt(1)) : c.q.sym_size(1);
  const SymInt rows = c.cos.sym_size(0);
  // The offset is taken off, for a sum of two large numbers would wrap.
  TORCH_CHECK_VALUE((rows - c.offset).sym_ge(length).expect_true(__FILE__, __LINE__),
                    "rotary: cos.size(0) must be at least ", text_of_sum(length, c.offset), " (",
                    c.cu_seqlens ? "max_seqlen" : "q.size(1)", " + offset), got ", rows);
}

// ---- ATen ---------------------------------------------------------------------------------------

// [N], or [B, S]: the row of the table for each token.
Tensor table_rows(const rotary_call& c, int64_t offset) {
  constexpr int64_t kFar = int64_t{1} << 62;  // sums of it and positions do not overflow
  const Tensor offsets = c.offsets ? c.offsets->to(at::kLong).clamp(-kFar, kFar) : Tensor();
  const auto options = c.q.options().dtype(at::kLong);
  const int64_t tokens = c.q.size(-3);
  Tensor position = at::arange(tokens, options);
  if (c.cu_seqlens) {
    const Tensor starts = c.cu_seqlens->to(at::kLong).contiguous();
    const Tensor sequence = at::searchsorted(starts, position, false, /*right=*/true) - 1;
    position =
        position -
        starts.index_select(0, sequence.clamp_min(0)).clamp_min(0).masked_fill(sequence < 0, 0);
    if (c.offsets) {  // zero before the first sequence and past the last
      const Tensor of_any = at::cat({offsets, at::zeros({1}, options)});
      position = position + of_any.index_select(0, sequence.remainder(starts.numel()));
    }
  } else if (c.offsets) {
    position = position + offsets.unsqueeze(1);
  }
  return (position + offset).clamp(0, c.cos.size(0) - 1);
}

// cos or sin of each token, […, tokens, 1, R / 2], in the dtype that is computed in.
Tensor of_tokens(const rotary_call& c, const Tensor& table, at::ScalarType type) {
  const int64_t offset = c.offset.guard_int(__FILE__, __LINE__), pairs = table.size(1);
  if (!c.cu_seqlens && !c.offsets) {
    return table.narrow(0, offset, c.q.size(1)).to(type).unsqueeze(1);
  }
  const Tensor rows = table_rows(c, offset);
  c10::DimVector sizes(rows.sizes());
  sizes.append({1, pairs});
  return table.index_select(0, rows.flatten()).to(type).view(sizes);
}

// The elements of the pairs: first or second of each.
Tensor of_pairs(const Tensor& x, const rotary_call& c, int64_t which) {
  const int64_t pairs = c.cos.size(1);
  return c.interleaved ? x.slice(-1, which, 2 * pairs, 2) : x.narrow(-1, which * pairs, pairs);
}

// `out` may be x.
void turn_by_aten(const rotary_call& c, const Tensor& x, const Tensor& out) {
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor cos = of_tokens(c, c.cos, type);
  const Tensor sin = of_tokens(c, c.conjugate ? c.sin.neg() : c.sin, type);
  const Tensor x1 = of_pairs(x, c, 0).to(type), x2 = of_pairs(x, c, 1).to(type);
  const Tensor first = x1 * cos - x2 * sin, second = x1 * sin + x2 * cos;
  of_pairs(out, c, 0).copy_(first);
  of_pairs(out, c, 1).copy_(second);
  if (!out.is_same(x)) out.slice(-1, 2 * c.cos.size(1)).copy_(x.slice(-1, 2 * c.cos.size(1)));
}

// ---- The kernel ---------------------------------------------------------------------------------

bool is_readable(const Tensor& t) { return t.size(-1) <= 1 || t.stride(-1) == 1; }

// The tensor as the kernel reads it: keep it until the launch has returned.
Tensor operand(const Tensor& t) { return is_readable(t) ? t : t.contiguous(); }

void take_notes(const rotary_call& c, bool in_place) {
  const auto note = [](const Tensor& t, const char* name, const char* how) {
    if (is_readable(t)) return;
    explaining()->notes.push_back(c10::str(name, " is copied first", how,
                                           ": the elements of a row are not neighbours (strides ",
                                           t.strides(), ")"));
  };
  note(c.q, "q", in_place ? ", and back" : "");
  note(c.k, "k", in_place ? ", and back" : "");
  note(c.cos, "cos", "");
  note(c.sin, "sin", "");
}

// Of [B, S, H, D], or of packed [N, H, D], as the kernel reads it. A dimension of size 1 has no
// stride to speak of.
rotary_strides strides_of(const Tensor& t) {
  const bool copied = !is_readable(t);
  const int64_t width = t.size(-1), token = width * t.size(-2);
  const auto stride = [&](int64_t dim, int64_t of_copy) {
    return t.size(dim) == 1 ? 0 : copied ? of_copy : t.stride(dim);
  };
  return {t.dim() == 4 ? stride(0, token * t.size(1)) : 0, stride(-3, token), stride(-2, width)};
}
int64_t row_stride_of(const Tensor& table) {
  return table.size(0) == 1 ? 0 : is_readable(table) ? table.stride(0) : table.size(1);
}

bool is_long(const std::optional<Tensor>& t) { return t && t->scalar_type() == at::kLong; }

// (Of float64, which no kernel takes, float32.)
rotary_problem problem_of(const rotary_call& c, const Tensor& q_out, const Tensor& k_out) {
  const bool packed = c.cu_seqlens.has_value();
  const auto type_of = [](const Tensor& t) {
    return kernel_dtype(t.scalar_type()).value_or(dtype::float32);
  };
  return {
      .batch = packed ? 1 : c.q.size(0),
      .tokens = c.q.size(-3),
      .width = c.q.size(-1),
      .rotated = 2 * c.cos.size(1),
      .q = {c.q.size(-2), strides_of(c.q), strides_of(q_out)},
      .k = {c.k.size(-2), strides_of(c.k), strides_of(k_out)},
      .table_rows = c.cos.size(0),
      .cos_stride = row_stride_of(c.cos),
      .sin_stride = row_stride_of(c.sin),
      .offset = c.offset.guard_int(__FILE__, __LINE__),
      .sequences = packed ? c.cu_seqlens->numel() - 1 : 0,
      .int64_offsets = is_long(c.offsets),
      .int64_seqlens = is_long(c.cu_seqlens),
      .interleaved = c.interleaved,
      .conjugate = c.conjugate,
      .in_place = q_out.is_same(c.q),
      .type = type_of(c.q),
      .table_type = type_of(c.cos),
  };
}

std::string why_torch(const rotary_call& c, const rotary_problem& problem) {
  return kernel_dtype(c.q.scalar_type()) ? why_unsupported(problem)
                                         : "float64 is computed by torch";
}

// Outputs whose rows are contiguous; q and k themselves in place.
void turn_by_kernel(const decision& d, const rotary_problem& problem, const rotary_call& c,
                    const Tensor& q_out, const Tensor& k_out) {
  const bool in_place = problem.in_place;
  const Tensor q = operand(c.q), k = operand(c.k), cos = operand(c.cos), sin = operand(c.sin);
  const Tensor offsets = c.offsets ? c.offsets->contiguous() : Tensor();
  const Tensor starts = c.cu_seqlens ? c.cu_seqlens->contiguous() : Tensor();
  launch(d, problem,
         rotary_tensors{
             .q = q.const_data_ptr(),
             .q_out = (in_place ? q : q_out).mutable_data_ptr(),
             .k = k.const_data_ptr(),
             .k_out = (in_place ? k : k_out).mutable_data_ptr(),
             .cos = cos.const_data_ptr(),
             .sin = sin.const_data_ptr(),
             .offsets = offsets.defined() ? offsets.const_data_ptr() : nullptr,
             .cu_seqlens = starts.defined() ? starts.const_data_ptr() : nullptr,
         },
         q.device());
  if (!in_place) return;
  if (!q.is_same(c.q)) c.q.copy_(q);
  if (!k.is_same(c.k)) c.k.copy_(k);
}

// ---- Ops ----------------------------------------------------------------------------------------

// In place, the outputs are q and k themselves.
void turn(const rotary_call& c, const Tensor& q_out, const Tensor& k_out) {
  const bool in_place = q_out.is_same(c.q), empty = c.q.numel() == 0 && c.k.numel() == 0;
  const bool nothing_to_do = empty || (in_place && c.cos.size(1) == 0);
  if (nothing_to_do && explaining() == nullptr) return;
  const rotary_problem problem = problem_of(c, q_out, k_out);
  const decision d = decide(kKernel, c.q.device(), why_torch(c, problem));
  if (d.explained) {
    if (d.on != nullptr) take_notes(c, in_place);
  } else if (d.on != nullptr) {
    turn_by_kernel(d, problem, c, q_out, k_out);
  } else {
    turn_by_aten(c, c.q, q_out);
    turn_by_aten(c, c.k, k_out);
  }
}

void check_writable(const Tensor& t, const char* name) {
  TORCH_CHECK(!overlaps_itself(t), "rotary: ", name,
              " must not overlap with itself where it is written in place, got sizes ", t.sizes(),
              " and strides ", t.strides());
}

two_tensors rotary_meta(const rotary_call& c) {
  check_rotary(c);
  return {empty_contiguous(c.q), empty_contiguous(c.k)};
}

// One kernel for every device: it looks at the tensors itself, so that a sparse or nested
// tensor or a foreign device gets our sentence and not the dispatcher's.
void every_op(torch::Library& m) {
  m.impl("rotary", with_rotary<rotary>);
  m.impl("rotary_", with_rotary<rotary_in_place>);
}

}  // namespace

void check_rotary(const rotary_call& c) {
  TORCH_CHECK_VALUE(c.cu_seqlens || !c.max_seqlen,
                    "rotary: max_seqlen must be None without cu_seqlens, got a number");
  TORCH_CHECK_VALUE(!c.cu_seqlens || c.max_seqlen,
                    "rotary: max_seqlen must be given with cu_seqlens, got None");
  const std::optional<SymInt> offset(c.offset);
  if (c.cu_seqlens) {
    check(kPackedTable, {c.q, c.k, c.cos, c.sin, offset, c.offsets, c.interleaved, c.conjugate,
                         c.cu_seqlens, c.max_seqlen});
    check_packing(c);
  } else {
    check(kBatchTable, {c.q, c.k, c.cos, c.sin, offset, c.offsets, c.interleaved, c.conjugate});
  }
  check_tables(c);
}

void check_dense_rotary(const rotary_call& c) {
  const std::optional<SymInt> offset(c.offset);
  check_dense(kBatchTable, {c.q, c.k, c.cos, c.sin, offset, c.offsets, c.interleaved, c.conjugate});
}

two_tensors rotary(const rotary_call& c) {
  check_rotary(c);
  const two_tensors out{empty_contiguous(c.q), empty_contiguous(c.k)};
  turn(c, std::get<0>(out), std::get<1>(out));
  return out;
}

void rotary_in_place(const rotary_call& c) {
  check_rotary(c);
  check_writable(c.q, "q");
  check_writable(c.k, "k");
  TORCH_CHECK(!overlap(c.q, c.k),
              "rotary: q and k must not share memory where they are written in place, got q of "
              "strides ",
              c.q.strides(), " and k of strides ", c.k.strides(), " that do");
  turn(c, c.q, c.k);
}

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  const char* const arguments =
      "Tensor cos, Tensor sin, SymInt offset=0, Tensor? offsets=None, bool interleaved=False, "
      "bool conjugate=False, Tensor? cu_seqlens=None, SymInt? max_seqlen=None) -> ";
  m.def(c10::str("rotary(Tensor q, Tensor k, ", arguments, "(Tensor, Tensor)").c_str(),
        {at::Tag::pt2_compliant_tag});
  m.def(c10::str("rotary_(Tensor(a!) q, Tensor(b!) k, ", arguments, "()").c_str(),
        {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("rotary", with_rotary<rotary_meta>);
  m.impl("rotary_", with_rotary<check_rotary>);
}

}  // namespace thunderkittens
