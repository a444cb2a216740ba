// How tensors […, D] reach kernels that read 16 bytes at once: by TMA, or cp.async.
#pragma once

#include <ATen/core/Tensor.h>

namespace thunderkittens {

// Why such a kernel cannot read a tensor where it lies; null when it can: 16 bytes is the alignment
// of those accesses. Strides of dimensions of size 1 mean nothing.
const char* why_copied(const at::Tensor& t);

// The tensor as such a kernel reads it, a contiguous copy where it cannot: keep it until the launch
// has returned.
at::Tensor tma_operand(const at::Tensor& t);

// Tells `explain` that a kernel will read a copy of `t`.
void note_tma_copy(const at::Tensor& t, const char* name);

}  // namespace thunderkittens
