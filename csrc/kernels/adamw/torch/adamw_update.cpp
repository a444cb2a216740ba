// Lists of tensors on their way to the kernels of AdamW.
#include "kernels/adamw/torch/adamw_update.hpp"

#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "binding/launch.h"
#include "binding/layout.h"
#include "kernels/adamw/adamw.h"

namespace thunderkittens::adamw_torch {
namespace {

const kernel kUpdateKernel("adamw", kAdamwUpdate);
const kernel kNormKernel("adamw", kAdamwNorm);

// Whether the elements of both, in the order of memory, are the same ones.
bool lies_like(const Tensor& t, const Tensor& param) {
  return t.is_same_size(param) && t.strides() == param.strides();
}

adamw_problem problem_of(const update_call& c, size_t i) {
  const update_options& o = c.options;
  return {
      .type = kernel_dtype_or_float(c.params[i].scalar_type()),
      .moments = kernel_dtype_or_float(c.exp_avgs[i].scalar_type()),
      .master_weights = !c.masters.empty(),
      .lr = o.lr,
      .beta1 = o.beta1,
      .beta2 = o.beta2,
      .eps = o.eps,
      .weight_decay = o.weight_decay,
      .maximize = o.maximize,
      .max_norm = o.max_norm.value_or(std::numeric_limits<double>::infinity()),
      .skip_nonfinite = o.skip_nonfinite,
      .stochastic_rounding = o.stochastic_rounding,
      .seed = static_cast<uint64_t>(o.seed),
      .step = o.step,
  };
}

std::string why_torch(const update_call& c, size_t i) {
  const Tensor& param = c.params[i];
  for (const TensorList& list : {c.params, c.exp_avgs, c.masters}) {
    if (!list.empty() && list[i].scalar_type() == at::kDouble) {
      return "float64 is computed by torch";
    }
  }
  const bool alike = lies_like(c.exp_avgs[i], param) && lies_like(c.exp_avg_sqs[i], param) &&
                     (c.masters.empty() || lies_like(c.masters[i], param));
  if (!alike || !param.is_non_overlapping_and_dense()) {
    return "parameters that are not dense, or not strided as their moments are";
  }
  return why_unsupported(problem_of(c, i));
}

// Parameters of one dtype, and of one for their moments, which one backend serves.
struct share {
  std::string why_torch;
  std::vector<size_t> members;
};
std::vector<share> shares_of(const update_call& c) {
  std::map<std::tuple<at::ScalarType, at::ScalarType, std::string>, share> found;
  for (size_t i = 0; i < c.params.size(); ++i) {
    const std::string reason = why_torch(c, i);
    share& s = found[{c.params[i].scalar_type(), c.exp_avgs[i].scalar_type(), reason}];
    s.why_torch = reason;
    s.members.push_back(i);
  }
  std::vector<share> shares;
  for (auto& [key, s] : found) shares.push_back(std::move(s));
  return shares;
}

// [1] of float32 on the device, or undefined.
Tensor as_float(const optional_tensor& t) { return t ? t->to(at::kFloat) : Tensor(); }
const float* address_of(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<float>() : nullptr;
}

// `counts`: whether skipped steps are counted by this share.
void update_by_kernel(const decision& d, const update_call& c, const share& s, bool counts) {
  adamw_problem problem = problem_of(c, s.members.front());
  std::vector<adamw_addresses> addresses;
  std::vector<Tensor> copies;  // of gradients, until the launch
  for (const size_t i : s.members) {
    const Tensor& param = c.params[i];
    Tensor grad = c.grads[i];
    if (!lies_like(grad, param)) {
      grad = at::empty_strided(param.sizes(), param.strides(), grad.options()).copy_(grad);
      copies.push_back(grad);
    }
    problem.sizes.push_back(param.numel());
    addresses.push_back({
        .grad = grad.const_data_ptr(),
        .param = param.mutable_data_ptr(),
        .exp_avg = c.exp_avgs[i].mutable_data_ptr(),
        .exp_avg_sq = c.exp_avg_sqs[i].mutable_data_ptr(),
        .master = c.masters.empty() ? nullptr : c.masters[i].mutable_data_ptr<float>(),
        .step = c.steps.empty() ? nullptr : c.steps[i].mutable_data_ptr<float>(),
        .number = c.numbers.empty() ? 0 : static_cast<uint32_t>(c.numbers[i]),
    });
  }
  const Tensor lr = as_float(c.lr), norm = as_float(c.grad_norm);
  launch(d, problem,
         adamw_tensors{
             .parameters = addresses,
             .lr = address_of(lr),
             .grad_norm = address_of(norm),
             .skipped = counts && c.skipped ? c.skipped->mutable_data_ptr<int>() : nullptr,
         });
}

}  // namespace

void check_options(const char* op, const update_options& o) {
  for (const auto& [name, beta] : {std::pair("beta1", o.beta1), std::pair("beta2", o.beta2)}) {
    TORCH_CHECK_VALUE(beta >= 0 && beta < 1, op, ": ", name,
                      " must be at least 0 and below 1, got ", beta);
  }
}

void update(const update_call& c) {
  bool counts = true;
  for (const share& s : shares_of(c)) {
    const decision d = decide(kUpdateKernel, c.params[0].device(), s.why_torch);
    if (d.explained) return;
    if (d.on != nullptr) {
      update_by_kernel(d, c, s, counts);
    } else {
      for (const size_t i : s.members) update_by_aten(c, i);
      if (counts) count_skipped(c);
    }
    counts = false;
  }
}

Tensor grad_norm(TensorList grads) {
  std::map<at::ScalarType, std::vector<Tensor>> by_type;
  for (const Tensor& g : grads) {
    by_type[g.scalar_type()].push_back(g.is_non_overlapping_and_dense() ? g : g.contiguous());
  }
  const bool is_double = by_type.contains(at::kDouble);
  const c10::Device device = grads.empty() ? c10::Device(at::kCPU) : grads[0].device();
  const auto options = at::TensorOptions(device).dtype(is_double ? at::kDouble : at::kFloat);
  if (grads.empty()) return at::zeros({}, options);
  const decision d = decide(kNormKernel, device, is_double ? "float64 is computed by torch" : "");
  if (d.explained) return Tensor();
  if (d.on == nullptr) {
    Tensor total = at::zeros({}, options);
    for (const Tensor& g : grads) total += g.to(options.dtype()).square().sum();
    return total.sqrt();
  }
  Tensor norm = at::empty({}, options);
  bool more = false;
  for (const auto& [type, list] : by_type) {
    grad_norm_problem problem{.type = kernel_dtype_or_float(type), .more = more};
    std::vector<const void*> addresses;
    for (const Tensor& g : list) {
      problem.sizes.push_back(g.numel());
      addresses.push_back(g.const_data_ptr());
    }
    launch(d, problem, grad_norm_tensors{addresses, norm.mutable_data_ptr<float>()});
    more = true;
  }
  return norm;
}

}  // namespace thunderkittens::adamw_torch
