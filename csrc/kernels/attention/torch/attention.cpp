// attention and attention_qkvpacked as torch ops. The ATen implementation is in
// attention_reference.cpp and attention_gradients.cpp.
//
//   o = softmax(scale · q kᵀ, masked) v,   lse = log Σ exp(scale · q kᵀ, masked),   per query row
//
// `attention` gives o, `attention_forward` also lse, `attention_backward` (attention_backward.cpp)
// the gradients of what the kernel computed, from the saved o and lse. A call that a kernel serves
// is one node of autograd's graph; every other is computed by ATen ops, which differentiate
// themselves. attention_qkvpacked is the same of q, k and v that are parts of one tensor, whose
// gradient is one tensor, too.
#include <ATen/ops/empty.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "binding/autograd.h"
#include "binding/by_name.h"
#include "binding/launch.h"
#include "binding/op.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/torch/attention_operands.hpp"
#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {

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

namespace {

const kernel kAttentionForwardKernel("attention", kAttentionForward),
    kQkvpackedForwardKernel("attention_qkvpacked", kAttentionForward);

// ---- Checks -------------------------------------------------------------------------------------

// Of what says which rows and keys a sequence has.
template <class Op>
void check_sequences(std::string_view name, const optional_tensor& starts, const auto&... args) {
  if (!starts) return;
  TORCH_CHECK_VALUE(!TORCH_GUARD_OR_FALSE(starts->sym_numel().sym_eq(0)), Op::name, ": ", name,
                    " must have shape [sequences + 1], got [0]");
  const auto given = by_name<Op>(args...);
  const bool seqused = given("seqused_k"_name).has_value();
  TORCH_CHECK_VALUE(!seqused && !given("leftpad_k"_name), Op::name, ": ",
                    seqused ? "seqused_k" : "leftpad_k",
                    " must be None with cu_seqlens, which say which keys a packed sequence has; "
                    "got a tensor");
}

// Of ops of q, k and v.
template <class Op>
struct of_three {
  static attention_call call_of(const auto&... args) { return {args...}; }
  // Whether the call is packed. Raises unless what says so is given together.
  static bool is_packed(const auto&... args) {
    const auto given = by_name<Op>(args...);
    const bool rows = given("cu_seqlens_q"_name).has_value(),
               keys = given("cu_seqlens_k"_name).has_value(),
               most_rows = given("max_seqlen_q"_name).has_value(),
               most_keys = given("max_seqlen_k"_name).has_value(), packed = rows || keys;
    TORCH_CHECK_VALUE(
        packed || (!most_rows && !most_keys), Op::name,
        ": max_seqlen_q and max_seqlen_k must be None without cu_seqlens, got a number");
    TORCH_CHECK_VALUE(!packed || (rows && keys), Op::name,
                      ": cu_seqlens_q and cu_seqlens_k must be given together, got ",
                      rows ? "cu_seqlens_k" : "cu_seqlens_q", " None");
    TORCH_CHECK_VALUE(!packed || (most_rows && most_keys), Op::name,
                      ": max_seqlen_q and max_seqlen_k must be given with cu_seqlens, got ",
                      most_rows ? "max_seqlen_k" : "max_seqlen_q", " None");
    return packed;
  }
  static void check_options(const auto&... args) {
    check_sequences<Op>("cu_seqlens_q", by_name<Op>(args...)("cu_seqlens_q"_name), args...);
  }
};

// Of ops of qkv.
template <class Op>
struct of_one {
  static attention_call call_of(const Tensor& qkv, bool causal, std::optional<double> scale,
                                std::optional<int64_t> left, std::optional<int64_t> right,
                                double softcap, const optional_tensor& sinks,
                                const optional_tensor& starts, const std::optional<SymInt>& most,
                                const optional_tensor& seqused_k,
                                const optional_tensor& leftpad_k) {
    const std::vector<Tensor> parts = qkv.unbind(-3);
    return {parts[0], parts[1], parts[2], causal, scale,     left,      right, softcap, sinks,
            starts,   starts,   most,     most,   seqused_k, leftpad_k, false, qkv};
  }
  static void check_options(const auto&... args) {
    const auto given = by_name<Op>(args...);
    const Tensor& qkv = given("qkv"_name);
    TORCH_CHECK_VALUE(qkv.sym_size(-3).sym_eq(3).expect_true(__FILE__, __LINE__), Op::name,
                      ": qkv must hold q, k and v, so qkv.size(-3) must be 3, got shape ",
                      qkv.sym_sizes());
    check_sequences<Op>("cu_seqlens", given("cu_seqlens"_name), args...);
  }
};

// Of a call that fits if q and k are torch's [B, H, S, D].
constexpr std::string_view kHeadsFirst =
    "; heads come after rows here: tensors of [B, H, S, D] go to "
    "thunderkittens.scaled_dot_product_attention, or are transposed first, q.transpose(1, 2)";

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

// What serves a call.
struct choice {
  attention_forward_problem problem;
  decision d;

  explicit choice(const attention_call& c)
      : problem(problem_of(c)),
        d(decide(c.qkv.defined() ? kQkvpackedForwardKernel : kAttentionForwardKernel, c.q,
                 problem)) {}
};

// Whether there is nothing to compute, and nothing to choose.
bool has_no_rows(const attention_call& c) {
  return c.q.numel() == 0 && c.q.size(-1) != 0 && explaining() == nullptr;
}

tensor_array<2> compute_as_chosen(const choice& chosen, const attention_call& c) {
  const decision& d = chosen.d;
  if (has_no_rows(c)) return {empty_output(c), empty_lse(c)};
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

// Of a tensor that Python computes with by itself, as DTensor: it knows the op, not its parts.
bool is_subclass(const Tensor& t) {
  return t.unsafeGetTensorImpl()->is_python_dispatch() &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

// Of torch.compile's stand-ins: whether a kernel could serve the call, so that it runs as one op
// with attention_backward behind it. The choice is made when the code runs.
bool may_be_served(const attention_call& c) {
  if (!is_stand_in(c.q)) return false;
  const c10::Device device = c.q.device();
  const bool built = !device.is_cuda() || why_not(kAttentionForwardKernel, device.index()).empty();
  return built && why_torch(c.q, problem_of(c)).empty();
}

// What the ops have in common; Op::call_of makes an attention_call of arguments.
template <class Op>
struct attention_op {
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr size_t kReturned = 1;
  static constexpr bool kPlainForward = true;

  static tensor_array<2> meta(const auto&... args) {
    const attention_call c = Op::call_of(args...);
    return {empty_output(c), empty_lse(c)};
  }

  static tensor_array<2> compute(bool wants_lse, const auto&... args) {
    attention_call c = Op::call_of(args...);
    c.wants_lse = wants_lse;
    return has_no_rows(c) ? meta(args...) : compute_as_chosen(choice(c), c);
  }

  static tensor_array<2> record(const call_to_record& call, const auto&... args) {
    if (is_subclass(first_of(args...))) return thunderkittens::record<Op>(call, args...);
    attention_call c = [&] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return Op::call_of(args...);
    }();
    c.wants_lse = call.all;
    if (may_be_served(c)) return thunderkittens::record<Op>(call, args...);
    const choice chosen(c);
    if (chosen.d.on == nullptr) {
      c = Op::call_of(args...);  // of parts that have a gradient
      c.wants_lse = call.all;
      const auto [o, lse] = attention_by_aten(c);
      differentiate_without_autocast({o, lse}, {c.q, c.k, c.v, c.sinks.value_or(Tensor())});
      return {o, lse};
    }
    if (!call.plain) return thunderkittens::record<Op>(call, args...);
    c.wants_lse = true;
    return record_as<Op>(call, [&] { return compute_as_chosen(chosen, c); }, args...);
  }
};

// ---- Ops ----------------------------------------------------------------------------------------

// The last arguments of all ops.
constexpr argument_list kLogits{
    optional(integer("window_left", 0)).otherwise("None").by_name(),
    optional(integer("window_right", 0)).otherwise("None"),
    number("softcap", 0.0).otherwise("0.0"),
};
constexpr argument_list kBounds{
    optional(tensor("seqused_k", dtype_rule::index, "B")).otherwise("None"),
    optional(tensor("leftpad_k", dtype_rule::index, "B")).otherwise("None"),
};
constexpr auto kOptions =
    kLogits +
    argument_list{
        optional(tensor("sinks", dtype_rule::same_or_float32, "Hq")).otherwise("None"),
        optional(tensor("cu_seqlens_q", dtype_rule::index, "B1"))
            .otherwise("None")
            .only_if_packed(),
        optional(tensor("cu_seqlens_k", dtype_rule::index, "B1"))
            .otherwise("None")
            .only_if_packed(),
        optional(size("max_seqlen_q", 0)).otherwise("None").only_if_packed(),
        optional(size("max_seqlen_k", 0)).otherwise("None").only_if_packed(),
    } +
    kBounds;
constexpr auto kQkvOptions =
    kLogits +
    argument_list{
        optional(tensor("sinks", dtype_rule::same_or_float32, "H")).otherwise("None"),
        optional(tensor("cu_seqlens", dtype_rule::index, "B1")).otherwise("None").only_if_packed(),
        optional(size("max_seqlen", 0)).otherwise("None").only_if_packed(),
    } +
    kBounds;

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
      kOptions;
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
      kOptions;
  static constexpr result_list results{
      result{.name = "o", .gradient = "dout", .shape = "B,Sq,Hq,Dv"},
      result{.name = "lse", .shape = "B,Hq,Sq"}};
  static constexpr size_t kPlain = 5;
};

struct attention_qkvpacked_backward : gradients_of<"attention_qkvpacked">,
                                      of_one<attention_qkvpacked_backward> {
  static constexpr auto arguments =
      argument_list{
          tensor("dout", dtype_rule::floating, "B,S,H,D").if_packed("T,H,D"),
          optional(tensor("dlse", dtype_rule::statistics, "B,H,S").if_packed("H,T")),
          tensor("qkv", dtype_rule::same, "B,S,3,H,D").if_packed("T,3,H,D"),
          tensor("o", dtype_rule::same, "B,S,H,D").if_packed("T,H,D").as_constant(),
          tensor("lse", dtype_rule::statistics, "B,H,S").if_packed("H,T").as_constant(),
          boolean("causal"),
          optional(number("scale")),
          needs<2>(),
      } +
      kQkvOptions;
  static constexpr result_list results{like("dqkv", "qkv"), like_if_given("dsinks", "sinks")};

  static tensor_array<2> compute(const Tensor& dout, const optional_tensor& dlse, const Tensor& qkv,
                                 const Tensor& o, const Tensor& lse, bool causal,
                                 std::optional<double> scale, std::array<bool, 2> needs,
                                 const auto&... options) {
    const bool parts = needs[0];
    attention_backward_call b{call_of(qkv, causal, scale, options...), o, lse, dout, dlse,
                              {parts, parts, parts, needs[1]}};
    const Tensor dqkv = parts ? empty_contiguous(qkv) : Tensor();
    if (parts) std::ranges::move(dqkv.unbind(-3), b.into.begin());
    return {dqkv, attention_gradients(std::move(b))[3]};
  }
};

struct attention_qkvpacked : attention_op<attention_qkvpacked>, of_one<attention_qkvpacked> {
  using backward = attention_qkvpacked_backward;
  static constexpr const char* name = "attention_qkvpacked";
  static constexpr auto arguments =
      argument_list{
          tensor("qkv", dtype_rule::floating, "B,S,3,H,D").if_packed("T,3,H,D"),
          boolean("causal").otherwise("False"),
          optional(number("scale")).otherwise("None"),
      } +
      kQkvOptions;
  static constexpr result_list results{result{.name = "o", .gradient = "dout", .shape = "B,S,H,D"},
                                       result{.name = "lse", .shape = "B,H,S"}};
  static constexpr size_t kPlain = 3;
};

const register_ops<attention, attention_backward, attention_qkvpacked, attention_qkvpacked_backward>
    registered_attention;

}  // namespace
}  // namespace thunderkittens
