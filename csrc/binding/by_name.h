// The arguments of a call by their names in the op's description, for what several ops compute
// alike.
//
//   const arguments_by_name<Op, ...> given(args...);
//   given("x"_name)                  the argument x
//   given("bias"_name, kNoTensor)    the argument bias, or kNoTensor where Op has none
#pragma once

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "binding/describe.h"

namespace thunderkittens {

template <literal Text>
struct name_constant {
  static constexpr std::string_view value{Text.text};
};
template <literal Text>
constexpr name_constant<Text> operator""_name() {
  return {};
}

// They outlive it.
template <class Op, class... T>
class arguments_by_name {
 public:
  explicit arguments_by_name(const T&... args) : all_(args...) {}

  template <class Name>
  const auto& operator()(Name) const {
    return std::get<kPlace<Name>>(all_);
  }
  template <class Name>
  const auto& operator()(Name name, const auto& otherwise) const {
    if constexpr (kPlace<Name> < Op::arguments.size) return (*this)(name);
    if constexpr (kPlace<Name> == Op::arguments.size) return otherwise;
  }
  // Calls `function` with all of them, but with `value` in place of one.
  template <class Name>
  decltype(auto) replacing(Name, const auto& value, const auto& function) const {
    const auto pick = [&]<size_t I>(std::integral_constant<size_t, I>) -> const auto& {
      if constexpr (I == kPlace<Name>) return value;
      if constexpr (I != kPlace<Name>) return std::get<I>(all_);
    };
    return [&]<size_t... I>(std::index_sequence<I...>) -> decltype(auto) {
      return function(pick(std::integral_constant<size_t, I>())...);
    }(std::index_sequence_for<T...>());
  }

 private:
  template <class Name>
  static constexpr size_t kPlace = Op::arguments.find(Name::value);

  std::tuple<const T&...> all_;
};

template <class Op, class... T>
arguments_by_name<Op, T...> by_name(const T&... args) {
  return arguments_by_name<Op, T...>(args...);
}

}  // namespace thunderkittens
