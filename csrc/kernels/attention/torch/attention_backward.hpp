// attention's gradients by kernels, or by ATen. Torch, unlike attention.h.
#pragma once

#include <string>

#include "kernels/attention/torch/attention_call.hpp"

namespace thunderkittens {

// dq, dk, dv and dsinks, contiguous, from o and lse, whatever computed those; undefined is what is
// not needed.
four_tensors attention_gradients(attention_backward_call b);

// For `explain`: what will compute the gradients of a forward on that device.
std::string who_differentiates(const device& on, const attention_forward_problem& forward);

}  // namespace thunderkittens
