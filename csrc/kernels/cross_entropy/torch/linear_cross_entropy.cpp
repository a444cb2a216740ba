// linear_cross_entropy as torch ops.
//
// A reduced loss is recorded with its gradients, as if that of the loss were 1, and its backward
// multiplies them. With a reduction of "none" that cannot be: there the backward computes them.
#include "binding/op.h"
#include "kernels/cross_entropy/torch/cross_entropy_call.hpp"

namespace thunderkittens {
namespace {

using torch::autograd::variable_list;

struct gradients_of_unreduced : gradients_of<"linear_cross_entropy"> {
  static constexpr argument_list arguments{
      tensor("x", dtype_rule::floating, "*,H"),
      tensor("dloss", dtype_rule::statistics, "*"),
      tensor("loss", dtype_rule::statistics, "*"),
      tensor("weight", dtype_rule::same, "V,H"),
      tensor("targets", dtype_rule::index, "*"),
      optional(tensor("bias", dtype_rule::same, "V")),
      needs<3>(),
      integer("ignore_index").otherwise("-100").by_name(),
      number("label_smoothing", 0.0).at_most(1.0).otherwise("0.0"),
      number("z_loss", 0.0).otherwise("0.0"),
  };
  static constexpr result_list results{like("dx", "x"), like("dweight", "weight"),
                                       like("dbias", "bias")};

  static tensor_array<3> compute(const Tensor& x, const Tensor& dloss, const Tensor&,
                                 const Tensor& weight, const Tensor& targets,
                                 const optional_tensor& bias, std::array<bool, 3> needs,
                                 int64_t ignore_index, double label_smoothing, double z_loss) {
    return linear_cross_entropy_backward(
        {x, weight, targets, bias, ignore_index, "none", label_smoothing, z_loss}, dloss, needs);
  }
};

// The loss, and its gradients as if its own were 1.
struct with_gradients {
  static constexpr const char* name = "linear_cross_entropy_forward";
  static constexpr const char* called = "linear_cross_entropy";
  static constexpr auto arguments =
      argument_list{
          tensor("x", dtype_rule::floating, "*,H"),
          tensor("weight", dtype_rule::same, "V,H"),
          tensor("targets", dtype_rule::index, "*"),
          optional(tensor("bias", dtype_rule::same, "V")),
          needs<3>(),
      } +
      kLossOptions + argument_list{optional(integer("chunk_rows", 1)).otherwise("None")};
  static constexpr result_list results{loss("loss"), like("dx", "x"), like("dweight", "weight"),
                                       like("dbias", "bias")};

  static tensor_array<4> compute(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                 const optional_tensor& bias, std::array<bool, 3> needs,
                                 const auto&... options) {
    return linear_cross_entropy_forward({x, weight, targets, bias, options...}, needs);
  }
};

// Multiplies the gradients that the forward has computed, of x, weight and bias.
struct scale_saved {
  static constexpr size_t kSaved = 4;  // the loss, and they
  static std::string name() { return "thunderkittens::linear_cross_entropy_backward"; }
  static std::tuple<> numbers() { return {}; }

  variable_list operator()(const backward_call& b) const {
    variable_list list(3);
    for (size_t i = 0; i < list.size(); ++i) {
      const Tensor& gradient = b.saved[1 + i];
      if (gradient.defined()) list[i] = scale_gradient(gradient, b.gradients[0], b.saved[0]);
    }
    return list;
  }
};

struct linear_cross_entropy {
  using backward = gradients_of_unreduced;
  static constexpr const char* name = "linear_cross_entropy";
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr auto arguments =
      argument_list{
          tensor("x", dtype_rule::floating, "*,H"),
          tensor("weight", dtype_rule::same, "V,H"),
          tensor("targets", dtype_rule::index, "*"),
          optional(tensor("bias", dtype_rule::same, "V")).otherwise("None"),
      } +
      kLossOptions;
  static constexpr result_list results{loss("loss")};

  static tensor_array<1> compute(const auto&... args) {
    return {linear_cross_entropy_forward({args...}, {})[0]};
  }

  static tensor_array<1> record(const call_to_record& call, const Tensor& x, const Tensor& weight,
                                const Tensor& targets, const optional_tensor& bias,
                                const auto&... of_loss) {
    if (loss_options(of_loss...).reduce == loss_reduction::none) {
      return thunderkittens::record<linear_cross_entropy>(call, x, weight, targets, bias,
                                                          of_loss...);
    }
    const auto node = make_node(scale_saved(), x, weight, bias);
    const std::array<bool, 3> needs = {x.requires_grad(), weight.requires_grad(),
                                       bias && bias->requires_grad()};
    const at::AutoGradMode nothing_inside(false);
    const tensor_array<4> results = functions<with_gradients, true>::below_autograd(
        call.plain, x, weight, targets, bias, needs, of_loss..., std::nullopt);
    torch::autograd::set_history(results[0], node);
    node->save(results[0], /*is_output=*/true);
    for (size_t i = 0; i < 3; ++i) node->save(needs[i] ? results[1 + i] : Tensor());
    return {results[0]};
  }
};

const register_ops<linear_cross_entropy, with_gradients, gradients_of_unreduced>
    registered_linear_cross_entropy;

}  // namespace
}  // namespace thunderkittens
