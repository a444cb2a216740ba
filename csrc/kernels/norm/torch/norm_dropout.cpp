#include "kernels/norm/torch/norm_by_name.hpp"

#include <ATen/ops/randint.h>

namespace thunderkittens {

void check_dropout(const char* op, const Tensor& x, double p, const optional_tensor& seed) {
  TORCH_CHECK_VALUE(p < 1.0, op, ": dropout_p must be < 1, got ", p);
  if (!seed) return;
  TORCH_CHECK_TYPE(seed->scalar_type() == at::kLong, op, ": seed must have dtype int64, got ",
                   seed->scalar_type());
  TORCH_CHECK_VALUE(seed->sym_numel() == 1, op, ": seed must have one element, got shape ",
                    seed->sym_sizes());
  TORCH_CHECK_VALUE(seed->device() == x.device(), op, ": seed must be on ", x.device(),
                    " (x's device), got ", seed->device());
}

optional_tensor seed_of(const Tensor& x, double p, bool training, const optional_tensor& seed) {
  if (!training || !(p > 0.0) || explaining() != nullptr) return std::nullopt;
  if (seed) return seed;
  return at::randint(std::numeric_limits<int64_t>::max(), {1},
                     at::TensorOptions(x.device()).dtype(at::kLong));
}

}  // namespace thunderkittens
