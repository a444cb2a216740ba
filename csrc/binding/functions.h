// The functions of an op that torch registers, from its description (binding/op.h).
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "binding/autocast.h"
#include "binding/describe.h"
#include "binding/dispatch.h"
#include "binding/layout.h"
#include "binding/outputs.h"
#include "binding/record.h"
#include "binding/vmap.h"

namespace thunderkittens {

// ---- Op, with what it leaves out ----------------------------------------------------------------

template <class Op>
constexpr const char* name_called() {
  if constexpr (requires { Op::called; }) return Op::called;
  return Op::name;
}
template <class Op>
constexpr size_t returned_results() {
  if constexpr (requires { Op::kReturned; }) return Op::kReturned;
  return Op::results.size;
}
template <class Op>
constexpr autocast_rule rule_in_autocast() {
  if constexpr (requires { Op::autocast; }) return Op::autocast;
  return autocast_rule::none;
}
template <class Op>
inline constexpr bool kHidesResults = requires { Op::kReturned; };
template <class Op>
constexpr argument_range written_arguments() {
  argument_range range;
  if constexpr (requires { Op::kWritten; }) range.count = Op::kWritten;
  if constexpr (requires { Op::kFirstWritten; }) range.first = Op::kFirstWritten;
  return range;
}
// Those whose dtype is theirs under autocast too: what is written in place, or stands for it.
template <class Op>
constexpr argument_range uncast_arguments() {
  if constexpr (requires { Op::kUncast; }) return Op::kUncast;
  return written_arguments<Op>();
}
template <class Op>
constexpr std::optional<divisibility> relation_of() {
  if constexpr (requires { Op::relation; }) return Op::relation;
  return std::nullopt;
}
template <class Op>
inline constexpr argument_table kTable = Op::arguments.table(name_called<Op>(), relation_of<Op>());
template <class Op>
inline constexpr argument_table kPackedTable =
    Op::arguments.packed_table(name_called<Op>(), relation_of<Op>());

template <class Op>
inline constexpr op_description kDescription{name_called<Op>(), Op::arguments.list,
                                             Op::results.list};
template <class Op>
inline constexpr bool kHasNeeds = Op::arguments.find("needs") < Op::arguments.size;

template <class Op>
bool is_packed(const auto&... args) {
  if constexpr (!Op::arguments.can_be_packed()) {
    return false;
  } else {
    const auto is_given = [](const auto& a) {
      if constexpr (requires { a.has_value(); }) return a.has_value();
      return true;
    };
    const bool given[] = {is_given(args)...};
    return is_packed(kDescription<Op>, given);
  }
}

template <class Op>
bool is_by_row(const auto&... args) {
  constexpr size_t kSeed = Op::arguments.find("seed");  // its mask is one for all rows
  constexpr size_t kReduction = Op::arguments.find("reduction");
  if constexpr (requires { Op::is_by_row(args...); }) {
    return Op::is_by_row(args...);
  } else if constexpr (Op::arguments.can_be_packed()) {
    return !is_packed<Op>(args...);
  } else if constexpr (kSeed < sizeof...(args)) {
    return !std::get<kSeed>(std::tie(args...));
  } else if constexpr (kReduction < sizeof...(args)) {
    return std::get<kReduction>(std::tie(args...)) == "none";
  } else {
    return true;
  }
}

// Raises unless the call is allowed.
template <class Op, class... Args>
void check_call(const Args&... args) {
  const value values[] = {value(args)...};
  if constexpr (Op::arguments.can_be_packed()) {
    check(is_packed<Op>(args...) ? kPackedTable<Op> : kTable<Op>, values);
  } else {
    check(kTable<Op>, values);
  }
  if constexpr (requires { Op::check_options(args...); }) Op::check_options(args...);
  if constexpr (kHasNeeds<Op>) check_needs(kDescription<Op>, values);
}

template <class First, class... Rest>
const First& first_of(const First& first, const Rest&...) {
  return first;
}

// ---- Calls --------------------------------------------------------------------------------------

// The functions of one op that torch registers; All: that which returns all results.
template <class Op, bool All, class... T>
struct functions_of<Op, All, argument_list<T...>> {
  static constexpr size_t kOutputs = All ? Op::results.size : returned_results<Op>();
  using output = typename output_of<kOutputs>::type;
  using handle_type = c10::TypedOperatorHandle<output(T...)>;

  static std::string name() {
    return c10::str(Op::name, All && kHidesResults<Op> ? "_forward" : "");
  }
  static const handle_type& handle() {
    static const handle_type op = c10::Dispatcher::singleton()
                                      .findSchemaOrThrow(("thunderkittens::" + name()).c_str(), "")
                                      .template typed<output(T...)>();
    return op;
  }

  // Of arguments that have been checked. Whoever calls it has left autograd.
  static results_of<Op> compute(T... args) {
    results_of<Op> results;
    if constexpr (kHidesResults<Op>) {
      results = Op::compute(All, args...);
    } else if constexpr (Op::results.size == 0) {
      Op::compute(args...);
    } else {
      results = Op::compute(args...);
    }
    for (size_t i = 0; i < kOutputs; ++i) {
      if (!results[i].defined()) results[i] = none(first_of(args...));
    }
    return results;
  }

  // A call through the dispatcher.
  static results_of<Op> dispatched(T... args) {
    if constexpr (kOutputs == 0) {
      handle().call(args...);
      return {};
    } else {
      return as_list<Op::results.size>(handle().call(args...));
    }
  }
  // A call below autograd, of arguments that have been checked: without the dispatcher, if `plain`.
  static results_of<Op> below_autograd(bool plain, T... args) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return plain ? compute(args...) : dispatched(args...);
  }
  // The same of an op that writes in place, where versions are counted.
  static void write_below_autograd(bool plain, T... args) {
    if (plain) {
      below_autograd(plain, args...);
      count_versions(args...);
    } else {
      const at::AutoDispatchBelowAutograd guard;
      handle().call(args...);
    }
  }

  // ---- Registered

  static output backend(c10::DispatchKeySet, T... args) {
    check_call<Op>(args...);
    return as_output<kOutputs>(compute(args...));
  }

  static output meta(c10::DispatchKeySet, T... args) {
    check_call<Op>(args...);
    results_of<Op> results;
    if constexpr (requires { Op::meta(args...); }) {
      results = Op::meta(args...);
    } else if constexpr (kOutputs > 0) {
      const value values[] = {value(args)...};
      make_empty(kDescription<Op>, values, is_by_row<Op>(args...),
                 std::span(results).first(kOutputs));
    }
    return as_output<kOutputs>(std::move(results));
  }

  static output autograd(c10::DispatchKeySet keys, T... args) {
    check_call<Op>(args...);
    if constexpr (requires { Op::differentiates; }) {
      return as_output<kOutputs>(once_differentiable(keys, args...));
    } else {
      refuse_forward_mode(name_called<Op>(), args...);
      const auto next = [&](T... given) -> output { return recorded(keys, given...); };
      if constexpr (requires { Op::before(next, args...); }) {
        return Op::before(next, args...);
      } else {
        return next(args...);
      }
    }
  }

  // Where versions are counted, also in inference mode, which has no autograd: who saved what is
  // written here has to notice.
  static output in_place(c10::DispatchKeySet keys, T... args) {
    const auto call = [&]() -> output {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return handle().redispatch(keys & c10::after_ADInplaceOrView_keyset, args...);
    };
    if constexpr (kOutputs == 0) {
      call();
      count_versions(args...);
    } else {
      output results = call();
      count_versions(args...);
      return results;
    }
  }

  // Under vmap. Random numbers are drawn as its `randomness` says.
  static output mapped(c10::DispatchKeySet keys, T... args) {
    // Before mapped sizes are in the messages; but autocast, which changes dtypes, comes after.
    if (!keys.has_any(c10::autocast_dispatch_keyset)) check_call<Op>(args...);
    const auto next = [](T... given) -> output {
      const value values[] = {value(given)...};
      op_description op = kDescription<Op>;
      op.results = op.results.first(kOutputs);
      torch::jit::Stack stack;
      torch::jit::push(stack, c10::IValue(given)...);
      std::vector<at::Tensor> results =
          call_mapped({op, handle(), values, std::move(stack), is_by_row<Op>(given...),
                       written_arguments<Op>()});
      std::array<at::Tensor, kOutputs> list;
      std::ranges::move(results, list.begin());
      return as_output<kOutputs>(std::move(list));
    };
    if constexpr (requires { Op::before(next, args...); }) {
      return Op::before(next, args...);
    } else {
      return next(args...);
    }
  }

  // Under autocast, in its dtype.
  template <c10::DeviceType Device>
  static output in_autocast(c10::DispatchKeySet, T... args) {
    const autocast_to<Device> cast;
    const auto next = [](T... given) -> output { return handle().call(given...); };
    if constexpr (requires { Op::in_autocast(next, cast, args...); }) {
      return Op::in_autocast(next, cast, args...);
    } else {
      size_t next_argument = 0;
      const auto cast_one = [&]<class A>(const A& a) -> A {
        const size_t i = next_argument++;
        if constexpr (kIsTensor<A>) {
          const bool is_cast = takes_autocast(Op::arguments.list[i].dtype, value(a));
          if (is_cast && !uncast_arguments<Op>().has(i)) return cast(a);
        }
        return a;
      };
      const std::tuple<std::remove_cvref_t<T>...> list{cast_one(args)...};
      return std::apply(next, as_given(list));
    }
  }

  // Under autocast, where dtypes may be mixed.
  static output promoted(c10::DispatchKeySet keys, T... args) {
    const value values[] = {value(args)...};
    const auto dtypes = promoted_dtypes(Op::arguments.list, values);
    if (std::ranges::none_of(dtypes, [](const auto& d) { return d.has_value(); })) {
      constexpr c10::DispatchKeySet kAfter(c10::DispatchKeySet::FULL_AFTER,
                                           c10::DispatchKey::AutocastCPU);
      return handle().redispatch(keys & kAfter, args...);
    }
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    size_t i = 0;
    const auto cast = [&]<class A>(const A& a) -> A {
      const auto& dtype = dtypes[i++];
      if constexpr (kIsTensor<A>) {
        if (dtype) return std::optional<at::Tensor>(a)->to(*dtype);
      }
      return a;
    };
    const std::tuple<std::remove_cvref_t<T>...> list{cast(args)...};
    const auto call = [](T... given) -> output { return handle().call(given...); };
    if constexpr (requires { Op::kKeepsDtypes; }) {
      return in_dtypes_of(std::apply(call, as_given(list)), values);
    } else {
      return std::apply(call, as_given(list));
    }
  }

  // The short form of the first arguments.
  template <size_t... First>
  static auto short_form(std::index_sequence<First...>) {
    return +[](std::tuple_element_t<First, std::tuple<T...>>... given) -> output {
      static const auto rest =
          defaults(std::make_index_sequence<sizeof...(T) - sizeof...(First)>());
      const auto call = [](T... args) { return handle().call(args...); };
      return std::apply(call, std::tuple_cat(std::tie(given...), as_given(rest)));
    };
  }

 private:
  // The results in the dtypes that what they are like was given in.
  template <class Output>
  static Output in_dtypes_of(Output&& results, std::span<const value> values) {
    std::array<at::Tensor, kOutputs> list = as_list<kOutputs>(std::move(results));
    for (size_t i = 0; i < kOutputs; ++i) {
      const size_t like = Op::arguments.find(Op::results.list[i].like);
      if (like < values.size()) list[i] = list[i].to(values[like].tensor->scalar_type());
    }
    return as_output<kOutputs>(std::move(list));
  }

  static void count_versions(T... args) {
    if (explaining() != nullptr) return;  // nothing was written
    constexpr argument_range kWritten = written_arguments<Op>();
    const auto list = std::tie(args...);
    const auto count = [](const std::optional<at::Tensor>& t) {
      if (t) torch::autograd::impl::bump_version(*t);
    };
    [&]<size_t... I>(std::index_sequence<I...>) {
      (count(std::get<kWritten.first + I>(list)), ...);
    }(std::make_index_sequence<kWritten.count>());
  }

  template <size_t... I>
  static auto defaults(std::index_sequence<I...>) {
    constexpr size_t kGiven = sizeof...(T) - sizeof...(I);
    const auto& list = handle().schema().arguments();
    return std::tuple<
        detail::kept<std::remove_cvref_t<std::tuple_element_t<kGiven + I, std::tuple<T...>>>>...>(
        list[kGiven + I]
            .default_value()
            ->template to<detail::kept<
                std::remove_cvref_t<std::tuple_element_t<kGiven + I, std::tuple<T...>>>>>()...);
  }
  template <class Tuple>
  static auto as_given(const Tuple& values) {
    return std::apply([](const auto&... v) { return std::tie(v...); }, values);
  }

  static output recorded(c10::DispatchKeySet keys, T... args) {
    const bool plain = is_plain(keys);
    if (records_gradient(args...)) {
      const call_to_record call{plain, All};
      if constexpr (requires { Op::kNoGradient; }) {
        size_t i = 0;
        (void)((records_gradient(args) || (++i, false)) || ...);
        refuse_gradient(kDescription<Op>, i, Op::kNoGradient);
      } else if constexpr (requires { Op::record(call, args...); }) {
        return as_output<kOutputs>(Op::record(call, args...));
      } else {
        return as_output<kOutputs>(record<Op>(call, args...));
      }
    }
    const at::AutoDispatchBelowADInplaceOrView guard;
    if (!plain) return handle().redispatch(keys & c10::after_autograd_keyset, args...);
    results_of<Op> results = compute(args...);
    if constexpr (kOutputs == 0 || requires { Op::kCountsVersions; }) count_versions(args...);
    return as_output<kOutputs>(std::move(results));
  }

  // A backward's results: without the error, a double backward would be silently wrong.
  static results_of<Op> once_differentiable(c10::DispatchKeySet keys, T... args) {
    const without_autocast guard;
    size_t i = 0;
    const auto needs_gradient = [&](const auto& a) {
      return !Op::arguments.list[i++].constant && records_gradient(a);
    };
    bool recorded = false;
    ((recorded |= needs_gradient(args)), ...);
    results_of<Op> results = below_autograd(is_plain(keys), args...);
    if (recorded) set_undifferentiable(Op::differentiates, results, args...);
    return results;
  }
};

}  // namespace thunderkittens
