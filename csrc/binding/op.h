// From an op's description and what it computes to the functions that torch registers.
//
// An op is a struct, of which all is static:
//
//   name                  what torch calls it
//   arguments, results    the description (binding/describe.h)
//   compute(args...)      its results, from arguments that have been checked: by a kernel or by
//                         ATen. Undefined is what is not wanted.
//
// and, where there is need:
//
//   called                as messages name it, if not `name`
//   relation              of its arguments' sizes
//   kReturned             how many of the results `name` returns; the others are for the backward.
//                         `name`_forward returns all. compute has one more argument: whether all
//                         are wanted
//   kWritten              how many of the first arguments are written in place
//   kPlain                how many of the first arguments the short form `name`.plain has; a call
//                         of it is one with the defaults of the others. (An argument that Python
//                         leaves out costs the host as much as one that it gives.)
//   kRandom               the op draws random numbers
//   is_packed(args...)    whether the arguments are those of packed sequences
//   check_options(args...)  raises what the description does not
//   meta(args...)         empty results, if the description does not say what they look like
//   before(next, args...) above the backends, where a graph of torch.compile shows it: calls `next`
//   in_autocast(next, cast, args...)  the same under autocast
//   backward              the op that computes its gradients. What it is given is known by name:
//                         an argument or result of this op, or "d" and a result's name, its
//                         gradient; its result "dx" is the gradient of x
//   differentiate(call, args of backward...)  calls `call`, backward, in a way of its own
//   record(call, args...) records a call in a way of its own
//   differentiates        of a backward: as messages name the op whose gradients it computes.
//                         They are not differentiable themselves
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "binding/describe.h"
#include "binding/dispatch.h"
#include "binding/layout.h"
#include "binding/record.h"

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
inline constexpr bool kHidesResults = requires { Op::kReturned; };
template <class Op>
constexpr size_t written_arguments() {
  if constexpr (requires { Op::kWritten; }) return Op::kWritten;
  return 0;
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

// Raises unless the call is allowed.
template <class Op, class... Args>
void check_call(const Args&... args) {
  const value values[] = {value(args)...};
  if constexpr (requires { Op::is_packed(args...); }) {
    check(Op::is_packed(args...) ? kPackedTable<Op> : kTable<Op>, values);
  } else {
    check(kTable<Op>, values);
  }
  if constexpr (requires { Op::check_options(args...); }) Op::check_options(args...);
  if constexpr (kHasNeeds<Op>) check_needs(kDescription<Op>, values);
}

// ---- Results ------------------------------------------------------------------------------------

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
      results = Op::compute(args..., All);
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
      make_empty(kDescription<Op>, values, std::span(results).first(kOutputs));
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
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      handle().redispatch(keys & c10::after_ADInplaceOrView_keyset, args...);
    }
    count_versions(args...);
  }

  // Cast: binding/autocast.h.
  template <c10::DeviceType Device, template <c10::DeviceType> class Cast>
  static output in_autocast(c10::DispatchKeySet, T... args) {
    const Cast<Device> cast;
    const auto next = [](T... given) -> output { return handle().call(given...); };
    return Op::in_autocast(next, cast, args...);
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
  static void count_versions(T... args) {
    const auto list = std::tie(args...);
    [&]<size_t... I>(std::index_sequence<I...>) {
      (torch::autograd::impl::bump_version(std::get<I>(list)), ...);
    }(std::make_index_sequence<written_arguments<Op>()>());
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
      if constexpr (requires { Op::record(call, args...); }) {
        return as_output<kOutputs>(Op::record(call, args...));
      } else {
        return as_output<kOutputs>(record<Op>(call, args...));
      }
    }
    const at::AutoDispatchBelowADInplaceOrView guard;
    if (!plain) return handle().redispatch(keys & c10::after_autograd_keyset, args...);
    if constexpr (kOutputs > 0) {
      return as_output<kOutputs>(compute(args...));
    } else {
      compute(args...);
      count_versions(args...);
    }
  }

  // Of the gradients that a backward computes: without the error, a double backward would be
  // silently wrong.
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

// ---- Registration -------------------------------------------------------------------------------

void define(const std::string& schema, bool draws_numbers = false);
void implement(const std::string& name, c10::DispatchKey key, torch::CppFunction&& function);

template <class F>
void implement(const std::string& name, std::initializer_list<c10::DispatchKey> keys, F* function) {
  for (const c10::DispatchKey key : keys) implement(name, key, torch::CppFunction(function));
}

// Whether the op stands above autograd too: it has a backward, is one, or records in its own way.
template <class Op>
inline constexpr bool kHasAutograd = requires { typename Op::backward; } ||
                                     requires { Op::differentiates; } || requires { Op::kRecords; };

template <class Op, bool All>
void register_functions() {
  using functions = functions<Op, All>;
  using c10::DispatchKey;
  const std::string name = functions::name();
  op_description description = kDescription<Op>;
  description.results = description.results.first(functions::kOutputs);
  define(schema(name, description, written_arguments<Op>()), requires { Op::kRandom; });
  // One kernel for every device: it looks at the tensors itself, so that a sparse or nested tensor
  // or a foreign device gets our sentence and not the dispatcher's.
  implement(name,
            {DispatchKey::CompositeExplicitAutograd, DispatchKey::NestedTensorCPU,
             DispatchKey::NestedTensorCUDA},
            functions::backend);
  implement(name, {DispatchKey::Meta}, functions::meta);
  if constexpr (kHasAutograd<Op>) implement(name, {DispatchKey::Autograd}, functions::autograd);
  if constexpr (requires { Op::kCountsVersions; }) {
    implement(name, {DispatchKey::ADInplaceOrView}, functions::in_place);
  }
  if constexpr (requires { Op::kPlain; }) {
    if constexpr (!All || !kHidesResults<Op> || requires { Op::kPlainForward; }) {
      description.arguments = description.arguments.first(Op::kPlain);
      define(schema(name + ".plain", description, 0, /*defaults=*/false));
      implement(name + ".plain",
                {DispatchKey::CompositeImplicitAutograd,
                 DispatchKey::CompositeImplicitAutogradNestedTensor},
                functions::short_form(std::make_index_sequence<Op::kPlain>()));
    }
  }
}

template <class... Ops>
struct register_ops {
  register_ops() { (register_one<Ops>(), ...); }

 private:
  template <class Op>
  static void register_one() {
    if constexpr (!requires { Op::called; }) {
      enter(kTable<Op>);
      if constexpr (Op::arguments.can_be_packed()) enter(kPackedTable<Op>);
    }
    register_functions<Op, !kHidesResults<Op>>();
    if constexpr (kHidesResults<Op>) register_functions<Op, true>();
  }
};

}  // namespace thunderkittens
