// Whether tensors that an op writes in place share memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace thunderkittens {

// Whether two elements of `t`, or one of `a` and one of `b`, lie in the same bytes: found out from
// addresses, sizes and strides, also where the tensors are interleaved (the parts of a projection).
// Of layouts so odd that it would take long to find out, true.
bool overlaps_itself(const at::Tensor& t);
bool overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace thunderkittens
