// The functional form of an op that writes in place: it returns what it would write.
//
// `step` of an op `struct step` with kWritten gives `step_functional`, whose results are those of
// `step` and, behind them, each written argument as it would be. Compiled code takes it where what
// is written is a view (thunderkittens/ops/_views.py).
#pragma once

#include <utility>

#include "binding/op.h"

namespace thunderkittens {
namespace detail {

constexpr std::string_view kFunctional = "_functional";

template <class Op>
inline constexpr literal<std::string_view(Op::name).size() + kFunctional.size() + 1>
    kFunctionalName{Op::name, kFunctional};

template <class Op>
constexpr auto functional_results() {
  constexpr argument_range kWritten = written_arguments<Op>();
  return []<size_t... R, size_t... W>(std::index_sequence<R...>, std::index_sequence<W...>) {
    return result_list{Op::results.list[R]...,
                       like_if_given("updated", Op::arguments.list[kWritten.first + W].name)...};
  }(std::make_index_sequence<Op::results.size>(), std::make_index_sequence<kWritten.count>());
}

inline at::Tensor copied(const at::Tensor& t) { return t.clone(at::MemoryFormat::Contiguous); }
inline std::optional<at::Tensor> copied(const std::optional<at::Tensor>& t) {
  return t ? std::optional(copied(*t)) : t;
}

}  // namespace detail

template <class Op>
struct functional_form {
  static constexpr const char* name = detail::kFunctionalName<Op>.text;
  static constexpr const char* called = name_called<Op>();
  static constexpr std::optional<divisibility> relation = relation_of<Op>();
  static constexpr auto arguments = Op::arguments;
  static constexpr auto results = detail::functional_results<Op>();
  static constexpr std::string_view kNoGradient = Op::kNoGradient;
  static constexpr autocast_rule autocast = rule_in_autocast<Op>();
  static constexpr argument_range kUncast = written_arguments<Op>();

  static void check_options(const auto&... args) { Op::check_options(args...); }
  static bool is_by_row(const auto&...) { return false; }  // what is written is of all of them
  static std::array<at::Tensor, results.size> compute(const auto&... args) {
    constexpr argument_range kWritten = written_arguments<Op>();
    std::tuple<std::remove_cvref_t<decltype(args)>...> given{args...};
    std::array<at::Tensor, results.size> all;
    [&]<size_t... W>(std::index_sequence<W...>) {
      const auto copy = [&](auto& t, at::Tensor& result) {
        t = detail::copied(t);
        if (const std::optional<at::Tensor> made = t) result = *made;
      };
      (copy(std::get<kWritten.first + W>(given), all[Op::results.size + W]), ...);
    }(std::make_index_sequence<kWritten.count>());
    std::ranges::move(std::apply([](const auto&... a) { return Op::compute(a...); }, given),
                      all.begin());
    return all;
  }
  static auto in_autocast(const auto&... args)
    requires requires { Op::in_autocast(args...); }
  {
    return Op::in_autocast(args...);
  }
};

}  // namespace thunderkittens
