// The results of an op, which are an array here, as torch takes them: nothing, a tensor or a tuple.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>
#include <utility>

namespace thunderkittens {

namespace detail {
template <size_t... I>
auto output_type(std::index_sequence<I...>) -> std::tuple<decltype(I, at::Tensor())...>;
}
// What torch takes `Count` results as.
template <size_t Count>
struct output_of {
  using type = decltype(detail::output_type(std::make_index_sequence<Count>()));
};
template <>
struct output_of<1> {
  using type = at::Tensor;
};
template <>
struct output_of<0> {
  using type = void;
};

template <size_t Count, size_t Size>
typename output_of<Count>::type as_output(std::array<at::Tensor, Size>&& list) {
  if constexpr (Count == 1) {
    return std::move(list[0]);
  } else if constexpr (Count > 1) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return std::tuple(std::move(list[I])...);
    }(std::make_index_sequence<Count>());
  }
}
template <size_t Size>
std::array<at::Tensor, Size> as_list(at::Tensor&& output) {
  return {std::move(output)};
}
template <size_t Size, class... Tensors>
std::array<at::Tensor, Size> as_list(std::tuple<Tensors...>&& outputs) {
  return std::apply([](auto&... t) { return std::array<at::Tensor, Size>{std::move(t)...}; },
                    outputs);
}

}  // namespace thunderkittens
