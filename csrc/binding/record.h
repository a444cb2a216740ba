// How a call is recorded: what its backward needs is found by name in the descriptions of the op
// and of its backward, and a node keeps it.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <string>
#include <tuple>
#include <utility>

#include "binding/describe.h"
#include "binding/dispatch.h"
#include "binding/gradient_node.h"

namespace thunderkittens {

// The functions of one op that torch registers (binding/op.h).
template <class Op, bool All, class Arguments>
struct functions_of;
template <class Op, bool All>
using functions = functions_of<Op, All, std::remove_cvref_t<decltype(Op::arguments)>>;
template <class Op>
using results_of = std::array<at::Tensor, Op::results.size>;
template <class Op, class... Args>
void check_call(const Args&... args);

// A call that is to be recorded.
struct call_to_record {
  bool plain;  // is_plain
  bool all;    // whether all results are returned, or those that the caller sees
};

// Calls an op as a backward does: without the dispatcher where nothing else waits for the call.
template <class Op, class... Args>
results_of<Op> call_from_backward(const Args&... args) {
  using callee = functions<Op, true>;
  const bool plain = !at::GradMode::is_enabled() && is_plain(keys_of(args...));
  if (!plain) return callee::dispatched(args...);
  const without_autocast guard;
  check_call<Op>(args...);
  return callee::below_autograd(true, args...);
}

namespace detail {

enum class origin : uint8_t { gradient, argument, result, needs };

// Where an argument of a backward comes from: which gradient, argument or result of the forward;
// and its place among the saved tensors, or numbers.
struct origin_of {
  origin from;
  size_t index = 0, place = 0;
};

template <class Op>
struct wiring {
  using backward = typename Op::backward;
  static constexpr auto& given = Op::arguments;
  static constexpr auto& results = Op::results;
  static constexpr auto& taken = backward::arguments;
  static constexpr size_t kTaken = taken.size, kGradients = backward::results.size;

  size_t saved = 0, numbers = 0, incoming = 0;
  std::array<origin_of, kTaken> origins{};
  std::array<size_t, kGradients> inputs{};         // the argument whose gradient each result is
  std::array<size_t, results.size> incoming_of{};  // the place of each result's; kNone: it has none
  static constexpr size_t kNone = size_t(-1);

  constexpr wiring() {
    for (size_t r = 0; r < results.size; ++r) {
      bool found = false;
      for (const argument& a : taken.list) found |= results.list[r].has_gradient(a.name);
      incoming_of[r] = found ? incoming++ : kNone;
    }
    for (size_t j = 0; j < kTaken; ++j) origins[j] = find(taken.list[j]);
    for (size_t i = 0; i < kGradients; ++i) {
      inputs[i] = given.find(backward::results.list[i].name.substr(1));
      if (inputs[i] == given.size) throw "a gradient of no argument";
    }
  }

 private:
  constexpr origin_of find(const argument& a) {
    if (a.name == "needs") return {origin::needs};
    for (size_t r = 0; r < results.size; ++r) {
      if (results.list[r].has_gradient(a.name)) return {origin::gradient, incoming_of[r]};
      if (results.list[r].name == a.name) return {origin::result, r, saved++};
    }
    const size_t i = given.find(a.name);
    if (i == given.size) throw "the forward has no argument or result of that name";
    return {origin::argument, i, a.type == "Tensor" ? saved++ : numbers++};
  }
};
template <class Op>
inline constexpr wiring<Op> kWiring;

// As a number or word is kept.
template <class T>
using kept = std::conditional_t<std::is_same_v<T, std::string_view>, std::string, T>;

template <class Arguments>
struct types_of;
template <class... T>
struct types_of<argument_list<T...>> {
  template <size_t I>
  using at = std::tuple_element_t<I, std::tuple<T...>>;
};
template <class Op>
using backward_types = types_of<std::remove_cvref_t<decltype(Op::backward::arguments)>>;

template <class Op, size_t J>
constexpr bool is_kept() {
  return kWiring<Op>.origins[J].from == origin::argument &&
         !kIsTensor<typename backward_types<Op>::template at<J>>;
}
template <class Op, size_t... J>
auto numbers_type(std::index_sequence<J...>) {
  const auto one = []<size_t I>(std::integral_constant<size_t, I>) {
    using type = kept<std::remove_cvref_t<typename backward_types<Op>::template at<I>>>;
    if constexpr (is_kept<Op, I>()) return std::tuple<type>();
    if constexpr (!is_kept<Op, I>()) return std::tuple<>();
  };
  return std::tuple_cat(one(std::integral_constant<size_t, J>())...);
}

}  // namespace detail

// What the node of an Op's call keeps and does.
template <class Op>
struct backward_by_name {
  using backward = typename Op::backward;
  static constexpr auto& kWiring = detail::kWiring<Op>;
  static constexpr size_t kSaved = kWiring.saved, kTaken = kWiring.kTaken;
  using taken = std::make_index_sequence<kTaken>;

  decltype(detail::numbers_type<Op>(taken())) kept;
  at::ScalarType type;  // of the first result

  // A sum of strings would do, but GCC 12 sees an overflow in it for names of some lengths.
  std::string name() const { return c10::str("thunderkittens::", backward::name); }
  auto numbers() const { return std::tuple_cat(kept, std::tuple(static_cast<int64_t>(type))); }

  torch::autograd::variable_list operator()(const backward_call& b) const {
    const auto call = [](const auto&... args) { return call_from_backward<backward>(args...); };
    auto results = [&]<size_t... J>(std::index_sequence<J...>) {
      if constexpr (requires { Op::differentiate(call, argument<J>(b)...); }) {
        return Op::differentiate(call, argument<J>(b)...);
      } else {
        return call(argument<J>(b)...);
      }
    }(taken());
    torch::autograd::variable_list list(kWiring.kGradients);
    for (size_t i = 0; i < list.size(); ++i) {
      if (b.needs[i]) list[i] = std::move(results[i]);
    }
    return list;
  }

 private:
  template <size_t J>
  auto argument(const backward_call& b) const {
    using type_of_argument =
        std::remove_cvref_t<typename detail::backward_types<Op>::template at<J>>;
    constexpr detail::origin_of kOrigin = kWiring.origins[J];
    if constexpr (kOrigin.from == detail::origin::needs) {
      type_of_argument needs;
      for (size_t i = 0; i < needs.size(); ++i) needs[i] = b.needs[i];
      return needs;
    } else if constexpr (!kIsTensor<type_of_argument>) {
      return type_of_argument(std::get<kOrigin.place>(kept));
    } else {
      const bool incoming = kOrigin.from == detail::origin::gradient;
      at::Tensor t;
      if (!incoming) {
        t = b.saved[kOrigin.place];
      } else if (kOrigin.index < b.gradients.size()) {
        t = b.gradients[kOrigin.index];
      }
      if constexpr (std::is_same_v<type_of_argument, at::Tensor>) {
        return incoming && !t.defined() ? zeros<J>(b) : t;
      } else {
        return as_optional(t);
      }
    }
  }

  // In place of a gradient that did not arrive: of the first result, whose shape a saved tensor
  // has.
  template <size_t J>
  at::Tensor zeros(const backward_call& b) const {
    const auto& list = backward::arguments.list;
    for (size_t i = 0; i < kTaken; ++i) {
      const bool saved = kWiring.origins[i].from == detail::origin::argument ||
                         kWiring.origins[i].from == detail::origin::result;
      if (!saved || i == J || list[i].shape.text != list[J].shape.text) continue;
      const at::Tensor& like = b.saved[kWiring.origins[i].place];
      return at::zeros_symint(like.sym_sizes(), like.options().dtype(type));
    }
    return at::Tensor();
  }
};

// Records a call that needs a gradient: `compute` gives all results, which become those of a node.
template <class Op, class Compute, class... Args>
results_of<Op> record_as(const call_to_record& call, const Compute& compute, const Args&... args) {
  constexpr auto& kWiring = detail::kWiring<Op>;
  using rule = backward_by_name<Op>;
  using taken = typename rule::taken;
  const auto given = std::tie(args...);
  const auto make = [&]<size_t... I>(std::index_sequence<I...>) {
    return make_node(rule(), std::get<kWiring.inputs[I]>(given)...);
  };
  const auto node = make(std::make_index_sequence<kWiring.kGradients>());
  results_of<Op> results;
  {
    const at::AutoGradMode nothing_inside(false);
    const at::AutoDispatchBelowADInplaceOrView guard;
    results = compute();
  }
  node->rule().type = results[0].scalar_type();

  // Outputs first: what is saved of them has to know its node.
  const size_t outputs = call.all ? Op::results.size : functions<Op, false>::kOutputs;
  const auto depends = [&](const result& r) {
    if (r.depends_on[0].empty()) return true;
    return [&]<size_t... I>(std::index_sequence<I...>) {
      const auto named = [&](size_t i) {
        const std::string_view name = Op::arguments.list[i].name;
        return r.depends_on[0] == name || r.depends_on[1] == name;
      };
      return ((named(I) && records_gradient(std::get<I>(given))) || ...);
    }(std::make_index_sequence<sizeof...(Args)>());
  };
  std::array<bool, Op::results.size> is_output{};
  for (size_t r = 0; r < outputs; ++r) {
    if (kWiring.incoming_of[r] == kWiring.kNone) continue;
    is_output[r] = depends(Op::results.list[r]);
    if (is_output[r]) {
      torch::autograd::set_history(results[r], node);
    } else {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
    }
  }

  const auto keep = [&]<size_t J>(std::integral_constant<size_t, J>) {
    constexpr detail::origin_of kOrigin = kWiring.origins[J];
    if constexpr (detail::is_kept<Op, J>()) {
      std::get<kOrigin.place>(node->rule().kept) = std::get<kOrigin.index>(given);
    } else if constexpr (kOrigin.from == detail::origin::argument) {
      node->save(std::get<kOrigin.index>(given));
    } else if constexpr (kOrigin.from == detail::origin::result) {
      node->save(results[kOrigin.index], is_output[kOrigin.index]);
    }
  };
  [&]<size_t... J>(std::index_sequence<J...>) {
    (keep(std::integral_constant<size_t, J>()), ...);
  }(taken());
  return results;
}

template <class Op, class... Args>
results_of<Op> record(const call_to_record& call, const Args&... args) {
  const auto compute = [&] { return functions<Op, true>::below_autograd(call.plain, args...); };
  return record_as<Op>(call, compute, args...);
}

// The results of the op that computes the gradients of `name` raise where they are differentiated.
template <size_t Count, class... Args>
void set_undifferentiable(const char* name, const std::array<at::Tensor, Count>& results,
                          const Args&... args) {
  torch::autograd::detail::MakeNextFunctionList make;
  const auto add = [&]<class T>(const T& a) {
    if constexpr (kIsTensor<T>) make(a);
  };
  (add(args), ...);
  const auto node = make_undifferentiable_node(name, std::move(make.next_edges));
  for (const at::Tensor& t : results) torch::autograd::set_history(t, node);
}

}  // namespace thunderkittens
