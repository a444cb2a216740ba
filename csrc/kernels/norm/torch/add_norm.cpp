#include "kernels/norm/torch/add_norm.hpp"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/autograd.h"
#include "binding/op.h"

namespace thunderkittens {
namespace {

using four_tensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

const add_norm_member* members[2];  // by `centred`

constexpr arguments kBackwardArguments({
    tensor("dy", dtype_rule::floating, "*,N"),
    optional(tensor("dsum", dtype_rule::same_or_float32, "*,N")),
    tensor("sum", dtype_rule::same_or_float32, "*,N"),
    optional(tensor("weight", dtype_rule::same_or_float32, "N")),
    optional(tensor("bias", dtype_rule::same_or_float32, "N")),
    tensor("rstd", dtype_rule::statistics, "*"),
});
constexpr argument_table kBackwardTable = kBackwardArguments.table("add_norm_backward");

void check_seed(const char* op, const Tensor& x, const optional_tensor& seed) {
  if (!seed) return;
  TORCH_CHECK_TYPE(seed->scalar_type() == at::kLong, op, ": seed must have dtype int64, got ",
                   seed->scalar_type());
  TORCH_CHECK_VALUE(seed->sym_numel() == 1, op, ": seed must have one element, got shape ",
                    seed->sym_sizes());
  TORCH_CHECK_VALUE(seed->device() == x.device(), op, ": seed must be on ", x.device(),
                    " (x's device), got ", seed->device());
}

void check_p(const char* op, double p) {
  TORCH_CHECK_VALUE(p < 1.0, op, ": dropout_p must be < 1, got ", p);
}

norm_call checked(bool centred, const norm_call& call) {
  const add_norm_member& member = add_norm_of(centred);
  member.check(call);
  check_p(member.name, call.dropout_p);
  check_seed(member.name, call.x, call.seed);
  return call;
}

// ---- Inner ops, and Meta: shapes, dtypes and strides, also of symbolic sizes --------------------

four_tensors as_results(const norm_results& r, const Tensor& x) {
  return {r.y, r.sum, or_none(r.mean, x), r.rstd};
}

four_tensors add_norm_forward(const Tensor& x, const Tensor& residual,
                              const optional_tensor& weight, const optional_tensor& bias,
                              bool centred, double eps, double weight_offset, bool round_first,
                              double dropout_p, const optional_tensor& seed) {
  const optional_tensor other = residual;
  const auto call =
      checked(centred, {x, other, weight, bias, eps, weight_offset, round_first, dropout_p, seed});
  return as_results(norm_forward(add_norm_of(centred).norm, call, /*statistics=*/true), x);
}

four_tensors add_norm_forward_meta(const Tensor& x, const Tensor& residual,
                                   const optional_tensor& weight, const optional_tensor& bias,
                                   bool centred, double eps, double weight_offset, bool round_first,
                                   double dropout_p, const optional_tensor& seed) {
  const optional_tensor other = residual;
  const auto call =
      checked(centred, {x, other, weight, bias, eps, weight_offset, round_first, dropout_p, seed});
  return as_results(empty_results(add_norm_of(centred).norm, call, /*statistics=*/true), x);
}

// dx and dresidual are equal where nothing is dropped and the dtypes agree: then the caller asks
// for the latter alone, and no tensor is written twice.
norm_backward_call backward_call(const Tensor& dy, const optional_tensor& dsum, const Tensor& sum,
                                 const optional_tensor& weight, const optional_tensor& bias,
                                 const Tensor& mean, const Tensor& rstd, double weight_offset,
                                 double dropout_p, const optional_tensor& seed, norm_needs needs) {
  constexpr const char* kName = "add_norm_backward";
  check(kBackwardTable, {dy, dsum, sum, weight, bias, rstd});
  check_p(kName, dropout_p);
  check_seed(kName, dy, seed);
  TORCH_CHECK_TYPE(!dsum || dsum->scalar_type() == sum.scalar_type(), kName,
                   ": dsum must have dtype ", sum.scalar_type(), " (sum's dtype), got ",
                   dsum ? dsum->scalar_type() : sum.scalar_type());
  TORCH_CHECK_VALUE((!needs[kDweight] || weight) && (!needs[kDbias] || bias), kName,
                    ": weight and bias must be given when their gradients are needed, got None");
  return {dy, dsum, sum, weight, bias, mean, rstd, needs, weight_offset, dropout_p, seed};
}

four_tensors as_results(const norm_gradients& g, const Tensor& x) {
  return {or_none(g[kDx], x), or_none(g[kDresidual], x), or_none(g[kDweight], x),
          or_none(g[kDbias], x)};
}

four_tensors add_norm_backward(const Tensor& dy, const optional_tensor& dsum, const Tensor& sum,
                               const optional_tensor& weight, const optional_tensor& bias,
                               const Tensor& mean, const Tensor& rstd, bool centred,
                               double weight_offset, double dropout_p, const optional_tensor& seed,
                               norm_needs needs) {
  const auto call = backward_call(dy, dsum, sum, weight, bias, centred ? mean : kUndefined, rstd,
                                  weight_offset, dropout_p, seed, needs);
  return as_results(norm_backward(add_norm_of(centred).norm, call), dy);
}

four_tensors add_norm_backward_meta(const Tensor& dy, const optional_tensor& dsum,
                                    const Tensor& sum, const optional_tensor& weight,
                                    const optional_tensor& bias, const Tensor& mean,
                                    const Tensor& rstd, bool, double weight_offset,
                                    double dropout_p, const optional_tensor& seed,
                                    norm_needs needs) {
  return as_results(empty_gradients(backward_call(dy, dsum, sum, weight, bias, mean, rstd,
                                                  weight_offset, dropout_p, seed, needs)),
                    dy);
}

// ---- Autograd -----------------------------------------------------------------------------------

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns y and sum, and with Statistics also mean and rstd, which carry no gradient. (Each output
// costs the caller half a microsecond.)
template <bool Statistics>
struct differentiable_add_norm : torch::autograd::Function<differentiable_add_norm<Statistics>> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& residual,
                               const optional_tensor& weight, const optional_tensor& bias,
                               bool centred, double eps, double weight_offset, bool round_first,
                               double dropout_p, const optional_tensor& seed) {
    static const auto op = find_op("thunderkittens::add_norm_forward", add_norm_forward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [y, sum, mean, rstd] = op.call(x, residual, weight, bias, centred, eps, weight_offset,
                                        round_first, dropout_p, seed);
    ctx->save_for_backward({sum, weight.value_or(Tensor()), bias.value_or(Tensor()), mean, rstd,
                            seed.value_or(Tensor())});
    ctx->set_materialize_grads(false);
    ctx->saved_data["of"] =
        std::make_tuple(centred, weight_offset, dropout_p, static_cast<int64_t>(x.scalar_type()));
    save_backend(ctx);
    variable_list constant = Statistics ? variable_list{mean, rstd} : variable_list{};
    if (!x.requires_grad() && !residual.requires_grad()) constant.push_back(sum);
    if (!constant.empty()) ctx->mark_non_differentiable(constant);
    return Statistics ? variable_list{y, sum, mean, rstd} : variable_list{y, sum};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    static const auto op = find_op("thunderkittens::add_norm_backward", add_norm_backward);
    variable_list results(10);
    if (!gradients[0].defined() && !gradients[1].defined()) return results;
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& sum = saved[0];
    const auto given = [](const Tensor& t) {
      return t.defined() ? optional_tensor(t) : std::nullopt;
    };
    const optional_tensor weight = given(saved[1]), bias = given(saved[2]), seed = given(saved[5]);
    const auto [centred, weight_offset, dropout_p, type] =
        ctx->saved_data["of"].to<std::tuple<bool, double, double, int64_t>>();
    const auto x_type = static_cast<at::ScalarType>(type);
    const Tensor dy = gradients[0].defined()
                          ? gradients[0]
                          : at::zeros_symint(sum.sym_sizes(), sum.options().dtype(x_type));
    // Edges exist for the tensors that were given, in their order.
    const bool dx = ctx->needs_input_grad(0), dresidual = ctx->needs_input_grad(1);
    const bool dweight = weight && ctx->needs_input_grad(2);
    const bool dbias = bias && ctx->needs_input_grad(weight ? 3 : 2);
    const bool one_for_both = !seed && x_type == sum.scalar_type();
    const backend_scope scope(saved_backend(ctx));
    const auto [of_x, of_residual, of_weight, of_bias] = op.call(
        dy, given(gradients[1]), sum, weight, bias, saved[3], saved[4], centred, weight_offset,
        dropout_p, seed, {dx && !one_for_both, dresidual || (dx && one_for_both), dweight, dbias});
    if (dx) results[0] = one_for_both ? of_residual : of_x;
    if (dresidual) results[1] = of_residual;
    if (dweight) results[2] = of_weight;
    if (dbias) results[3] = of_bias;
    return results;
  }
};

four_tensors add_norm_forward_autograd(const Tensor& x, const Tensor& residual,
                                       const optional_tensor& weight, const optional_tensor& bias,
                                       bool centred, double eps, double weight_offset,
                                       bool round_first, double dropout_p,
                                       const optional_tensor& seed) {
  const auto outputs = differentiable_add_norm<true>::apply(
      x, residual, weight, bias, centred, eps, weight_offset, round_first, dropout_p, seed);
  return {outputs[0], outputs[1], outputs[2], outputs[3]};
}

four_tensors add_norm_backward_autograd(c10::DispatchKeySet keys, const Tensor& dy,
                                        const optional_tensor& dsum, const Tensor& sum,
                                        const optional_tensor& weight, const optional_tensor& bias,
                                        const Tensor& mean, const Tensor& rstd, bool centred,
                                        double weight_offset, double dropout_p,
                                        const optional_tensor& seed, norm_needs needs) {
  static const auto op = find_op("thunderkittens::add_norm_backward", add_norm_backward);
  return once_differentiable(add_norm_of(centred).name, op, keys,
                             records_gradient(dy, dsum, sum, weight), dy, dsum, sum, weight, bias,
                             mean, rstd, centred, weight_offset, dropout_p, seed, needs);
}

}  // namespace

const add_norm_member& add_norm_of(bool centred) { return *members[centred]; }

enter_add_norm::enter_add_norm(const add_norm_member& member) {
  members[member.norm.centred] = &member;
}

optional_tensor seed_of(const char* op, const Tensor& x, double p, bool training,
                        const optional_tensor& seed) {
  if (!x.defined()) return std::nullopt;  // and the op refuses it
  check_p(op, p);
  check_seed(op, x, seed);
  if (!training || !(p > 0.0) || explaining() != nullptr) return std::nullopt;
  if (seed) return seed;
  return at::randint(std::numeric_limits<int64_t>::max(), {1},
                     at::TensorOptions(x.device()).dtype(at::kLong));
}

y_and_sum add_norm(bool centred, const norm_call& call) {
  const auto results =
      norm_forward(add_norm_of(centred).norm, checked(centred, call), /*statistics=*/false);
  return {results.y, results.sum};
}

y_and_sum add_norm_meta(bool centred, const norm_call& call) {
  const auto results =
      empty_results(add_norm_of(centred).norm, checked(centred, call), /*statistics=*/false);
  return {results.y, results.sum};
}

y_and_sum add_norm_recorded(bool centred, const norm_call& call) {
  const variable_list outputs = differentiable_add_norm<false>::apply(
      call.x, *call.residual, call.weight, call.bias, centred, call.eps, call.weight_offset,
      call.round_first, call.dropout_p, call.seed);
  return {outputs[0], outputs[1]};
}

// ---- Registration -------------------------------------------------------------------------------

namespace {

TORCH_LIBRARY_FRAGMENT(thunderkittens, m) {
  m.def(
      "add_norm_forward(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, bool centred, "
      "float eps, float weight_offset, bool round_first, float dropout_p, Tensor? seed) "
      "-> (Tensor y, Tensor sum, Tensor mean, Tensor rstd)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "add_norm_backward(Tensor dy, Tensor? dsum, Tensor sum, Tensor? weight, Tensor? bias, "
      "Tensor mean, Tensor rstd, bool centred, float weight_offset, float dropout_p, Tensor? seed, "
      "bool[4] needs) -> (Tensor dx, Tensor dresidual, Tensor dweight, Tensor dbias)",
      {at::Tag::pt2_compliant_tag});
}

// One kernel for every device, as for layer_norm.
void every_op(torch::Library& m) {
  m.impl("add_norm_forward", add_norm_forward);
  m.impl("add_norm_backward", add_norm_backward);
}
TORCH_LIBRARY_IMPL(thunderkittens, CompositeExplicitAutograd, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCPU, m) { every_op(m); }
TORCH_LIBRARY_IMPL(thunderkittens, NestedTensorCUDA, m) { every_op(m); }

TORCH_LIBRARY_IMPL(thunderkittens, Meta, m) {
  m.impl("add_norm_forward", add_norm_forward_meta);
  m.impl("add_norm_backward", add_norm_backward_meta);
}

TORCH_LIBRARY_IMPL(thunderkittens, Autograd, m) {
  m.impl("add_norm_forward", add_norm_forward_autograd);
  m.impl("add_norm_backward", add_norm_backward_autograd);
}

}  // namespace
}  // namespace thunderkittens
