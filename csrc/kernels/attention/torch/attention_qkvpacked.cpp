// attention_qkvpacked as torch ops: attention of q, k and v that are parts of one tensor, whose
// gradient is one tensor, too.
#include "kernels/attention/torch/attention_op.hpp"

namespace thunderkittens {
namespace {

constexpr argument_list kQkvPlaces{
    optional(tensor("sinks", dtype_rule::same_or_float32, "H")).otherwise("None"),
    optional(tensor("cu_seqlens", dtype_rule::index, "B1")).otherwise("None").only_if_packed(),
    optional(size("max_seqlen", 0)).otherwise("None").only_if_packed(),
};

template <class Op>
struct of_qkv {
  static attention_call call_of(const Tensor& qkv, bool causal, std::optional<double> scale,
                                const auto& left, const auto& right, double softcap,
                                const auto& seqused_k, const auto& leftpad_k, const auto& sinks,
                                const auto& starts, const auto& most) {
    const std::vector<Tensor> parts = qkv.unbind(-3);
    return {parts[0],  parts[1], parts[2], causal, scale, left, right, softcap, seqused_k,
            leftpad_k, sinks,    starts,   starts, most,  most, false, qkv};
  }
  static void check_options(const auto&... args) {
    const SymInt parts = by_name<Op>(args...)("qkv"_name).sym_size(-3);
    TORCH_CHECK_VALUE(parts.sym_eq(3).expect_true(__FILE__, __LINE__), Op::name,
                      ": qkv.size(-3) must be 3, for q, k and v, got ", parts);
    check_sequences<Op>(args...);
  }
};

struct attention_qkvpacked_backward : gradients_of<"attention_qkvpacked">,
                                      of_qkv<attention_qkvpacked_backward> {
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
      kOptions + kQkvPlaces;
  static constexpr result_list results{like("dqkv", "qkv"), like_if_given("dsinks", "sinks")};

  static tensor_array<2> compute(const Tensor& dout, const optional_tensor& dlse, const Tensor& qkv,
                                 const Tensor& o, const Tensor& lse, bool causal,
                                 std::optional<double> scale, std::array<bool, 2> needs,
                                 const auto&... options) {
    const bool parts = needs[0];
    attention_backward_call b{call_of(qkv, causal, scale, options...), o, lse, dout, dlse,
                              {parts, parts, parts, needs[1]}};
    const Tensor dqkv = parts ? empty_contiguous(qkv) : Tensor();
    for (int64_t i = 0; parts && i < 3; ++i) b.into[i] = dqkv.select(-3, i);
    return {dqkv, attention_gradients(std::move(b))[3]};
  }
};

struct attention_qkvpacked : attention_op<attention_qkvpacked>, of_qkv<attention_qkvpacked> {
  using backward = attention_qkvpacked_backward;
  static constexpr const char* name = "attention_qkvpacked";
  static constexpr auto arguments =
      argument_list{
          tensor("qkv", dtype_rule::floating, "B,S,3,H,D").if_packed("T,3,H,D"),
          boolean("causal").otherwise("False"),
          optional(number("scale")).otherwise("None"),
      } +
      kOptions + kQkvPlaces;
  static constexpr result_list results{result{.name = "o", .gradient = "dout", .shape = "B,S,H,D"},
                                       result{.name = "lse", .shape = "B,H,S"}};
  static constexpr size_t kPlain = 3;
};

const register_ops<attention_qkvpacked, attention_qkvpacked_backward> registered_qkvpacked;

}  // namespace
}  // namespace thunderkittens
