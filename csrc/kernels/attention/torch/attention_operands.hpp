// How tensors […, D] reach kernels that read 16 bytes at once: ours, and torch's fused attention.
// Torch, unlike attention.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace thunderkittens {

// Why such a kernel cannot read a tensor where it lies; null when it can: 16 bytes is the alignment
// of TMA's and cp.async's accesses. Strides of dimensions of size 1 mean nothing.
const char* why_copied(const at::Tensor& t);

// The tensor as our kernel reads it, a contiguous copy where it cannot: keep it until the launch
// has returned.
at::Tensor operand(const at::Tensor& t);

// A tensor [B, S, H, D] as torch's fused attention reads it. On a GPU torch 2.11 checks neither the
// address (`misaligned address`) nor the batches' stride, finds no kernel for other strides that
// are not multiples of 16 bytes, even of dimensions of size 1, and may write past the last of many
// heads where those of k and v have stride 0. On the CPU it lays o out in the order of q's strides,
// and is silently wrong where that of a row's elements is not the least.
at::Tensor operand_of_torch(const at::Tensor& t);

}  // namespace thunderkittens
