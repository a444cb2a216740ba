// based_attention: what a pass computes, of both kernels. (based_attention.cuh,
// based_attention_generic.cuh)
#pragma once

#include "kernels/based_attention/based_attention_forward.cuh"
#include "kernels/based_attention/based_attention_gradient.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

template <class Config>
using pass_walk = std::conditional_t<
    Config::differentiates, gradient_walk<Config>,
    std::conditional_t<Config::outputs, forward_walk<Config>, state_walk<Config>>>;

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
