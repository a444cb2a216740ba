// swiglu, geglu and gelu: what the host passes to the launchers. No torch, no device code.
// (thunderkittens/kernels/activation.h: what the ops compute.)
#pragma once

#include "kittens/host/launchers.h"
#include "thunderkittens/kernels/activation.h"

namespace thunderkittens {

struct gated_forward_params : gated_forward_problem, gated_forward_tensors {};
struct gated_backward_params : gated_backward_problem, gated_backward_tensors {};
struct gelu_forward_params : gelu_forward_problem, gelu_forward_tensors {};
struct gelu_backward_params : gelu_backward_problem, gelu_backward_tensors {};

inline constexpr kittens::host::kernel_entry<gated_forward_params> kSwigluForward{"swiglu_forward"},
    kGegluForward{"geglu_forward"};
inline constexpr kittens::host::kernel_entry<gated_backward_params> kSwigluBackward{
    "swiglu_backward"},
    kGegluBackward{"geglu_backward"};
inline constexpr kittens::host::kernel_entry<gelu_forward_params> kGeluForward{"gelu_forward"};
inline constexpr kittens::host::kernel_entry<gelu_backward_params> kGeluBackward{"gelu_backward"};

}  // namespace thunderkittens
