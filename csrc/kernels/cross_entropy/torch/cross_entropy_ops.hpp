// The ops of cross_entropy below autograd, for what stands above.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <tuple>

namespace thunderkittens {

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, int64_t ignore_index,
                         std::string_view reduction, double label_smoothing, double z_loss);
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& targets, int64_t ignore_index,
                          std::string_view reduction, double label_smoothing, double z_loss);
std::tuple<at::Tensor, at::Tensor> cross_entropy_forward(const at::Tensor& logits,
                                                         const at::Tensor& targets,
                                                         int64_t ignore_index,
                                                         std::string_view reduction,
                                                         double label_smoothing, double z_loss);
at::Tensor cross_entropy_forward_(at::Tensor& logits, const at::Tensor& targets,
                                  int64_t ignore_index, std::string_view reduction,
                                  double label_smoothing, double z_loss);
at::Tensor cross_entropy_backward(const at::Tensor& gradient, const at::Tensor& dloss,
                                  const at::Tensor& loss);
void cross_entropy_backward_(at::Tensor& gradient, const at::Tensor& dloss);

// Raise unless the tensors are given and strided.
void check_dense_logits(const at::Tensor& logits, const at::Tensor& targets);
void check_dense_gradient(const at::Tensor& gradient, const at::Tensor& dloss,
                          const at::Tensor& loss);

}  // namespace thunderkittens
