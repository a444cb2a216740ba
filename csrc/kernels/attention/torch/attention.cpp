// attention as torch ops. The ATen implementation is in attention_reference.cpp and
// attention_gradients.cpp.
//
//   o = softmax(scale · q kᵀ, masked) v,   lse = log Σ exp(scale · q kᵀ, masked),   per query row
//
// `attention` gives o, `attention_forward` also lse, `attention_backward` (attention_backward.cpp)
// the gradients of what the kernel computed, from the saved o and lse. A call that a kernel serves
// is one node of autograd's graph; every other is computed by ATen ops, which differentiate
// themselves.
#include <ATen/ops/empty.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/torch/attention_op.hpp"
#include "kernels/attention/torch/attention_operands.hpp"
#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {
namespace {

const kernel kAttentionForwardKernel("attention", kAttentionForward),
    kQkvpackedForwardKernel("attention_qkvpacked", kAttentionForward);

template <class Op>
struct of_three {
  static attention_call call_of(const auto&... args) { return {args...}; }
  static void check_options(const auto&... args) { check_sequences<Op>(args...); }
};

// Of a call that fits if q and k are torch's [B, H, S, D].
constexpr std::string_view kHeadsFirst =
    "; heads come after rows here: tensors of [B, H, S, D] go to "
    "thunderkittens.scaled_dot_product_attention, or are transposed first, q.transpose(1, 2)";

constexpr argument_list kPlaces{
    optional(tensor("sinks", dtype_rule::same_or_float32, "Hq")).otherwise("None"),
    optional(tensor("cu_seqlens_q", dtype_rule::index, "B1")).otherwise("None").only_if_packed(),
    optional(tensor("cu_seqlens_k", dtype_rule::index, "B1")).otherwise("None").only_if_packed(),
    optional(size("max_seqlen_q", 0)).otherwise("None").only_if_packed(),
    optional(size("max_seqlen_k", 0)).otherwise("None").only_if_packed(),
};

struct attention_backward : gradients_of<"attention">, of_three<attention_backward> {
  static constexpr divisibility relation{"Hq", "Hk"};
  static constexpr auto arguments =
      argument_list{
          tensor("dout", dtype_rule::floating, "B,Sq,Hq,Dv").if_packed("Tq,Hq,Dv"),
          optional(tensor("dlse", dtype_rule::statistics, "B,Hq,Sq").if_packed("Hq,Tq")),
          tensor("q", dtype_rule::same, "B,Sq,Hq,D").if_packed("Tq,Hq,D"),
          tensor("k", dtype_rule::same, "B,Sk,Hk,D").if_packed("Tk,Hk,D"),
          tensor("v", dtype_rule::same, "B,Sk,Hk,Dv").if_packed("Tk,Hk,Dv"),
          tensor("o", dtype_rule::same, "B,Sq,Hq,Dv").if_packed("Tq,Hq,Dv").as_constant(),
          tensor("lse", dtype_rule::statistics, "B,Hq,Sq").if_packed("Hq,Tq").as_constant(),
          boolean("causal"),
          optional(number("scale")),
          needs<4>(),
      } +
      kOptions + kPlaces;
  static constexpr result_list results{like("dq", "q"), like("dk", "k"), like("dv", "v"),
                                       like_if_given("dsinks", "sinks")};

  static tensor_array<4> compute(const Tensor& dout, const optional_tensor& dlse, const Tensor& q,
                                 const Tensor& k, const Tensor& v, const Tensor& o,
                                 const Tensor& lse, bool causal, std::optional<double> scale,
                                 std::array<bool, 4> needs, const auto&... options) {
    return attention_gradients({{q, k, v, causal, scale, options...}, o, lse, dout, dlse, needs});
  }
};

struct attention : attention_op<attention>, of_three<attention> {
  using backward = attention_backward;
  static constexpr const char* name = "attention";
  static constexpr divisibility relation{"Hq", "Hk", "Sq", "Sk", kHeadsFirst};
  static constexpr auto arguments =
      argument_list{
          tensor("q", dtype_rule::floating, "B,Sq,Hq,D").if_packed("Tq,Hq,D"),
          tensor("k", dtype_rule::same, "B,Sk,Hk,D").if_packed("Tk,Hk,D"),
          tensor("v", dtype_rule::same, "B,Sk,Hk,Dv").if_packed("Tk,Hk,Dv"),
          boolean("causal").otherwise("False"),
          optional(number("scale")).otherwise("None"),
      } +
      kOptions + kPlaces;
  static constexpr result_list results{
      result{.name = "o", .gradient = "dout", .shape = "B,Sq,Hq,Dv"},
      result{.name = "lse", .shape = "B,Hq,Sq"}};
  static constexpr size_t kPlain = 5;
};

const register_ops<attention, attention_backward> registered_attention;

// ---- The kernel ---------------------------------------------------------------------------------

void take_notes(const decision& d, const attention_call& c) {
  note_tma_copy(c.q, "q");
  note_key_copy(c, c.k, "k");
  note_key_copy(c, c.v, "v");
  const auto any = [](const auto&... t) { return ((t.defined() && t.requires_grad()) || ...); };
  if (any(c.q, c.k, c.v, c.qkv)) note_backward(*d.on, c);
}

// lse may be undefined: not wanted.
void forward_kernel(const decision& d, attention_forward_problem problem, const attention_call& c,
                    const Tensor& o, const Tensor& lse) {
  const Tensor q = tma_operand(c.q), k = key_operand(c, c.k), v = key_operand(c, c.v);
  problem.q_strides = strides_of(q);
  problem.k_strides = strides_of(k);
  problem.v_strides = strides_of(v);
  launch(d, problem,
         attention_forward_tensors{
             .q = input(q),
             .k = input(k),
             .v = input(v),
             .o = output(o),
             .lse = output<float>(lse),
             .sinks = input<float>(contiguous_sinks(c)),
             .cu_seqlens_q = input(contiguous(c.cu_seqlens_q)),
             .cu_seqlens_k = input(contiguous(c.cu_seqlens_k)),
             .seqused_k = input(contiguous(c.seqused_k)),
             .leftpad_k = input(contiguous(c.leftpad_k)),
         });
}

// [B, Sq, Hq, Dv], packed [Tq, Hq, Dv].
Tensor empty_output(const attention_call& c) {
  c10::SmallVector<SymInt, 4> sizes(c.q.sym_sizes());
  sizes.back() = c.v.sym_sizes().back();
  return at::empty_symint(sizes, c.q.options());
}

// [B, Hq, Sq], packed [Hq, Tq].
Tensor empty_lse(const attention_call& c) {
  const auto sizes = c.q.sym_sizes();
  const auto options = c.q.options().dtype(statistics_dtype(c.q));
  return sizes.size() == 3 ? at::empty_symint({sizes[1], sizes[0]}, options)
                           : at::empty_symint({sizes[0], sizes[2], sizes[1]}, options);
}

}  // namespace

attention_forward_problem problem_of(const attention_call& c) {
  const auto size = [](const SymInt& s) { return s.maybe_as_int().value_or(0); };
  const auto reach = [](const std::optional<int64_t>& window) {
    return window.value_or(attention_forward_problem::kAll);
  };
  const bool packed = c.cu_seqlens_q.has_value();
  const int64_t width = c.q.sym_size(-1).guard_int(__FILE__, __LINE__);
  return {
      .batch = packed ? 1 : size(c.q.sym_size(0)),
      .rows = size(c.q.sym_size(-3)),
      .keys = size(c.k.sym_size(-3)),
      .heads = size(c.q.sym_size(-2)),
      .key_heads = size(c.k.sym_size(-2)),
      .head_dim = width,
      .value_dim = c.v.sym_size(-1).guard_int(__FILE__, __LINE__),
      .scale = attention_scale(c.scale, width),
      .softcap = c.softcap,
      .left = reach(c.window_left),
      .right = c.causal ? 0 : reach(c.window_right),
      .packed = packed,
      .sequences = packed ? size(c.cu_seqlens_q->sym_numel()) - 1 : 0,
      .int64_seqlens_q = is_int64(c.cu_seqlens_q),
      .int64_seqlens_k = is_int64(c.cu_seqlens_k),
      .bounded_keys = c.bounds_keys(),
      .int64_seqused_k = is_int64(c.seqused_k),
      .int64_leftpad_k = is_int64(c.leftpad_k),
      .type = kernel_dtype_or_float(c.q.scalar_type()),
  };
}

attention_choice::attention_choice(const attention_call& c)
    : problem(problem_of(c)),
      d(decide(c.qkv.defined() ? kQkvpackedForwardKernel : kAttentionForwardKernel, c.q, problem)) {
}

tensor_array<2> empty_attention(const attention_call& c) { return {empty_output(c), empty_lse(c)}; }

bool has_no_rows(const attention_call& c) {
  return c.q.numel() == 0 && c.q.size(-1) != 0 && explaining() == nullptr;
}

tensor_array<2> attention_as_chosen(const attention_choice& chosen, const attention_call& c) {
  const decision& d = chosen.d;
  if (has_no_rows(c)) return empty_attention(c);
  if (d.explained) {
    if (d.on != nullptr) take_notes(d, c);
    return {none(c.q), none(c.q)};
  }
  const bool has_no_keys = c.k.size(-3) == 0;  // nothing for TMA to read
  if (d.on == nullptr || has_no_keys) {
    const auto [o, lse] = attention_by_aten(c);
    return {exactly_contiguous(o), exactly_contiguous(lse)};
  }
  const Tensor o = empty_output(c);
  const Tensor lse = c.wants_lse ? empty_lse(c) : Tensor();
  forward_kernel(d, chosen.problem, c, o, lse);
  return {o, lse};
}

bool is_subclass(const Tensor& t) {
  return t.unsafeGetTensorImpl()->is_python_dispatch() &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

bool may_be_served(const attention_call& c) {
  if (!is_stand_in(c.q)) return false;
  const c10::Device device = c.q.device();
  const bool built = !device.is_cuda() || why_not(kAttentionForwardKernel, device.index()).empty();
  return built && why_torch(c.q, problem_of(c)).empty();
}

}  // namespace thunderkittens
