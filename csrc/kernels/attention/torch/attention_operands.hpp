// How tensors [B, S, H, D] reach torch's fused attention, and k and v our kernels. (And others:
// binding/tma_operand.h.)
#pragma once

#include <ATen/core/Tensor.h>

#include "binding/tma_operand.h"
#include "kernels/attention/torch/attention_call.hpp"

namespace thunderkittens {

// A tensor [B, S, H, D] as torch's fused attention reads it. On a GPU torch 2.11 checks neither the
// address (`misaligned address`) nor the batches' stride, finds no kernel for other strides that
// are not multiples of 16 bytes, even of dimensions of size 1, and may write past the last of many
// heads where those of k and v have stride 0. On the CPU it lays o out in the order of q's strides,
// and is silently wrong where that of a row's elements is not the least.
Tensor operand_of_torch(const Tensor& t);

// Of [B, S, H, D], or of packed [T, H, D]; what the stride of a single packed row is, is nothing.
attention_strides strides_of(const Tensor& t);

// Float32, as the kernels read them; undefined without.
Tensor contiguous_sinks(const attention_call& c);

// k or v of a call as the kernels read it, a contiguous copy where they cannot; and what `explain`
// is told of that.
Tensor key_operand(const attention_call& c, const Tensor& t);
void note_key_copy(const attention_call& c, const Tensor& t, const char* name);

}  // namespace thunderkittens
