// For results that ATen ops differentiate themselves.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <vector>

namespace thunderkittens {

// The nodes of the graph between `inputs` and `results` will run without autocast.
void differentiate_without_autocast(const std::vector<at::Tensor>& results,
                                    const std::vector<at::Tensor>& inputs);

}  // namespace thunderkittens
