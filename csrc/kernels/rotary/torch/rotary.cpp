// rotary as torch ops.
//
//   (x1, x2) → (x1 cos − x2 sin, x1 sin + x2 cos)   for each pair of the first R elements of a head
//
// `rotary` gives new tensors, `rotary_` writes q and k themselves. With `conjugate` they turn back,
// which is their gradient: a rotation is linear, so a backward is differentiable like the forward,
// to any order. Under autocast q and k may differ in dtype, and keep theirs.
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include "binding/launch.h"
#include "binding/op.h"
#include "binding/overlap.h"
#include "kernels/rotary/rotary.h"
#include "kernels/rotary/torch/rotary_call.hpp"

namespace thunderkittens {
namespace {

using torch::autograd::variable_list;

const kernel kRotaryKernel("rotary", kRotary);

// ---- Checks -------------------------------------------------------------------------------------

void check_packing(const rotary_call& c) {
  if (!c.offsets) return;
  const SymInt starts = c.cu_seqlens->sym_numel(), sequences = c.offsets->sym_numel();
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

// Whether the tables have a column for each element of a head, not for each pair. Of those that
// turn a part of it nothing but their values would tell.
bool has_full_width(const rotary_call& c) {
  const SymInt columns = c.cos.sym_size(1);
  return TORCH_GUARD_OR_FALSE(columns.sym_eq(c.q.sym_size(-1))) &&
         TORCH_GUARD_OR_FALSE(columns.sym_gt(0));
}

void check_width(const rotary_call& c) {
  const SymInt width = c.q.sym_size(-1), columns = c.cos.sym_size(1);
  if (!has_full_width(c)) {
    TORCH_CHECK_VALUE((columns * 2).sym_le(width).expect_true(__FILE__, __LINE__),
                      "rotary: cos.size(1) must be at most ", width / 2,
                      " (half of q.size(-1)), or ", width,
                      " where cos and sin have two equal halves, got ", columns);
    return;
  }
  TORCH_CHECK_VALUE((columns % 2).sym_eq(0).expect_true(__FILE__, __LINE__),
                    "rotary: cos.size(1) must be at most ", width / 2,
                    " (half of q.size(-1)), got ", columns);
  // Tables of both kinds are in use for such pairs.
  TORCH_CHECK_VALUE(!c.interleaved, "rotary: cos.size(1) must be at most ", width / 2,
                    " (half of q.size(-1)) where interleaved, got ", columns,
                    ": give cos[..., :", columns / 2, "] and sin[..., :", columns / 2,
                    "] of tables whose halves are equal, cos[..., ::2] and sin[..., ::2] of those "
                    "whose neighbours are");
}

void check_sizes(const rotary_call& c) {
  if (c.cu_seqlens) check_packing(c);
  TORCH_CHECK_TYPE(c.cos.scalar_type() == c.sin.scalar_type(),
                   "rotary: sin must have the dtype of cos, ", c.cos.scalar_type(), ", got ",
                   c.sin.scalar_type());
  check_width(c);
  // A token that cu_seqlens leaves out needs a row too.
  const SymInt length = c.cu_seqlens ? c.max_seqlen->max(SymInt(1)) : c.q.sym_size(1);
  const SymInt rows = c.cos.sym_size(0);
  // The offset is taken off, for a sum of two large numbers would wrap.
  TORCH_CHECK_VALUE((rows - c.offset).sym_ge(length).expect_true(__FILE__, __LINE__),
                    "rotary: cos.size(0) must be at least ", text_of_sum(length, c.offset), " (",
                    c.cu_seqlens ? "max_seqlen" : "q.size(1)", " + offset), got ", rows);
}

void check_writable(const rotary_call& c) {
  check_no_overlap("rotary", "q", c.q, " where it is written in place");
  check_no_overlap("rotary", "k", c.k, " where it is written in place");
  check_no_overlap("rotary", "q", c.q, "k", c.k, " where both are written in place");
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

rotary_problem problem_of(const rotary_call& c, const Tensor& q_out, const Tensor& k_out) {
  const bool packed = c.cu_seqlens.has_value();
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
      .int64_offsets = is_int64(c.offsets),
      .int64_seqlens = is_int64(c.cu_seqlens),
      .interleaved = c.interleaved,
      .conjugate = c.conjugate,
      .in_place = q_out.is_same(c.q),
      .type = kernel_dtype_or_float(c.q.scalar_type()),
      .table_type = kernel_dtype_or_float(c.cos.scalar_type()),
  };
}

// Outputs whose rows are contiguous; q and k themselves in place.
void turn_by_kernel(const decision& d, const rotary_problem& problem, const rotary_call& c,
                    const Tensor& q_out, const Tensor& k_out) {
  const bool in_place = problem.in_place;
  const Tensor q = operand(c.q), k = operand(c.k);
  launch(d, problem,
         rotary_tensors{
             .q = input(q),
             .q_out = output(in_place ? q : q_out),
             .k = input(k),
             .k_out = output(in_place ? k : k_out),
             .cos = input(operand(c.cos)),
             .sin = input(operand(c.sin)),
             .offsets = input(contiguous(c.offsets)),
             .cu_seqlens = input(contiguous(c.cu_seqlens)),
         });
  if (!in_place) return;
  if (!q.is_same(c.q)) c.q.copy_(q);
  if (!k.is_same(c.k)) c.k.copy_(k);
}

// With a column of the tables for each pair. In place, the outputs are q and k themselves.
void turn_pairs(const rotary_call& c, const Tensor& q_out, const Tensor& k_out) {
  const bool in_place = q_out.is_same(c.q), empty = c.q.numel() == 0 && c.k.numel() == 0;
  const bool nothing_to_do = empty || (in_place && c.cos.size(1) == 0);
  if (nothing_to_do && explaining() == nullptr) return;
  const rotary_problem problem = problem_of(c, q_out, k_out);
  const decision d = decide(kRotaryKernel, c.q, problem);
  if (d.explained) {
    if (d.on != nullptr) take_notes(c, in_place);
  } else if (d.on != nullptr) {
    turn_by_kernel(d, problem, c, q_out, k_out);
  } else {
    turn_by_aten(c, c.q, q_out);
    turn_by_aten(c, c.k, k_out);
  }
}

// Of full tables the first halves are taken, to which the others are equal.
void turn(const rotary_call& c, const Tensor& q_out, const Tensor& k_out) {
  if (!has_full_width(c)) return turn_pairs(c, q_out, k_out);
  const int64_t pairs = c.cos.size(1) / 2;
  const Tensor cos = c.cos.narrow(1, 0, pairs), sin = c.sin.narrow(1, 0, pairs);
  turn_pairs({c.q, c.k, cos, sin, c.offset, c.offsets, c.interleaved, c.conjugate, c.cu_seqlens,
              c.max_seqlen},
             q_out, k_out);
  if (explaining() == nullptr) return;
  explaining()->notes.push_back(c10::str("cos and sin have ", 2 * pairs,
                                         " columns: the first halves, cos[..., :", pairs,
                                         "] and sin[..., :", pairs, "], are read"));
}

// ---- Autograd -----------------------------------------------------------------------------------

void refuse_table_gradients(const rotary_call& c) {
  TORCH_CHECK_NOT_IMPLEMENTED(!records_gradient(c.cos, c.sin),
                              "rotary: cos and sin must not require a gradient, got ",
                              c.cos.requires_grad() ? "cos" : "sin", " that does");
}

// The backward of a call, or of q or k alone.
struct turn_back {
  SymInt offset;
  bool interleaved, conjugate;
  std::optional<SymInt> max_seqlen;

  static constexpr size_t kSaved = 4;
  static std::string name() { return "thunderkittens::rotary_backward"; }
  auto numbers() const { return std::make_tuple(offset, interleaved, conjugate, max_seqlen); }
  variable_list operator()(const backward_call& b) const;
};

// The node of a call whose inputs with gradients are these.
template <class... Inputs>
auto node_of(const rotary_call& c, const Inputs&... inputs) {
  auto node = make_node(turn_back{c.offset, c.interleaved, c.conjugate, c.max_seqlen}, inputs...);
  node->save(c.cos);
  node->save(c.sin);
  node->save(c.offsets);
  node->save(c.cu_seqlens);
  return node;
}

// ---- Ops ----------------------------------------------------------------------------------------

// What both have in common.
struct rotary_of_tables {
  static constexpr const char* called = "rotary";
  static constexpr argument_list arguments{
      tensor("q", dtype_rule::floating, "B,S,Hq,D").if_packed("N,Hq,D"),
      tensor("k", dtype_rule::same, "B,S,Hk,D").if_packed("N,Hk,D"),
      tensor("cos", dtype_rule::same_or_float32, "T,P"),
      tensor("sin", dtype_rule::same_or_float32, "T,P"),
      size("offset", 0).otherwise("0"),
      optional(tensor("offsets", dtype_rule::index, "B")).otherwise("None"),
      boolean("interleaved").otherwise("False"),
      boolean("conjugate").otherwise("False"),
      optional(tensor("cu_seqlens", dtype_rule::index, "B1")).otherwise("None").only_if_packed(),
      optional(size("max_seqlen", 0)).otherwise("None").only_if_packed(),
  };
  static constexpr bool kRecords = true;

  static void check_options(const auto&... args) { check_sizes({args...}); }
};

struct rotary : rotary_of_tables {
  static constexpr const char* name = "rotary";
  static constexpr autocast_rule autocast = autocast_rule::promote;
  static constexpr result_list results{like("", "q"), like("", "k")};
  static constexpr size_t kPlain = 4;
  static constexpr bool kKeepsDtypes = true;

  static tensor_array<2> compute(const auto&... args) {
    const rotary_call c{args...};
    const tensor_array<2> out{empty_contiguous(c.q), empty_contiguous(c.k)};
    turn(c, out[0], out[1]);
    return out;
  }

  static tensor_array<2> record(const call_to_record& call, const auto&... args) {
    const rotary_call c{args...};
    refuse_table_gradients(c);
    const auto node = node_of(c, c.q, c.k);
    const tensor_array<2> out = functions<rotary, true>::below_autograd(call.plain, args...);
    for (const Tensor& t : out) torch::autograd::set_history(t, node);
    return out;
  }
};

struct rotary_in_place : rotary_of_tables {
  static constexpr const char* name = "rotary_";
  static constexpr result_list results{};
  static constexpr size_t kWritten = 2;
  static constexpr bool kCountsVersions = true;

  static void compute(const auto&... args) {
    const rotary_call c{args...};
    check_writable(c);
    turn(c, c.q, c.k);
  }

  // Of q and k each has a node of its own, since a node that changes a view (of a fused projection)
  // may change nothing else.
  static tensor_array<0> record(const call_to_record& call, const auto&... args) {
    const rotary_call c{args...};
    refuse_table_gradients(c);
    std::array<std::shared_ptr<torch::autograd::Node>, 2> nodes;
    const std::array<const Tensor*, 2> written = {&c.q, &c.k};
    for (size_t i = 0; i < 2; ++i) {  // before anything is written
      torch::autograd::check_inplace(*written[i], written[i]->requires_grad());
      if (written[i]->requires_grad()) nodes[i] = node_of(c, *written[i]);
    }
    functions<rotary_in_place, true>::write_below_autograd(call.plain, args...);
    for (size_t i = 0; i < 2; ++i) torch::autograd::rebase_history(*written[i], nodes[i]);
    return {};
  }
};

// The gradients of q and k from those of the results, of which one may be undefined.
variable_list turn_back::operator()(const backward_call& b) const {
  const auto arrived = [&](size_t i) {
    return i < b.gradients.size() && b.needs[i] ? b.gradients[i] : Tensor();
  };
  const Tensor dq = arrived(0), dk = arrived(1);
  variable_list list(b.gradients.size());
  if (!dq.defined() && !dk.defined()) return list;
  const auto or_no_heads = [](const Tensor& t, const Tensor& like) {
    return t.defined() ? t : like.narrow(-2, 0, 0);
  };
  const auto [q, k] = call_from_backward<rotary>(
      or_no_heads(dq, dk), or_no_heads(dk, dq), b.saved[0], b.saved[1], offset,
      as_optional(b.saved[2]), interleaved, !conjugate, as_optional(b.saved[3]), max_seqlen);
  if (dq.defined()) list[0] = q;
  if (dk.defined()) list[1] = k;
  return list;
}

const register_ops<rotary, rotary_in_place> registered_rotary;

}  // namespace
}  // namespace thunderkittens
