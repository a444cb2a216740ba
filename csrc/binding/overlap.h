// Whether tensors that an op writes in place share memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace thunderkittens {

// Whether two elements of `t`, or one of `a` and one of `b`, lie in the same bytes: found out from
// addresses, sizes and strides, also where the tensors are interleaved (the parts of a projection).
// Of layouts so odd that it would take long to find out, true.
bool overlaps_itself(const at::Tensor& t);
bool overlap(const at::Tensor& a, const at::Tensor& b);

// Raises where `t` overlaps with itself, or shares memory with another argument of `op`. `why` it
// must not, such as ", since it is written in place".
void check_no_overlap(std::string_view op, std::string_view name, const at::Tensor& t,
                      std::string_view why);
void check_no_overlap(std::string_view op, std::string_view name, const at::Tensor& t,
                      std::string_view other_name, const at::Tensor& other, std::string_view why);

}  // namespace thunderkittens
