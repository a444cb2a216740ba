// Ops that are not described yet: what they write by hand.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "binding/backend.h"
#include "binding/describe.h"
#include "binding/dispatch.h"

namespace thunderkittens {

template <size_t Count>
struct arguments {
  std::array<argument, Count> list;
  std::array<std::string_view, kMaxDims> dims{};

  constexpr explicit arguments(const argument (&items)[Count]) {
    for (size_t i = 0; i < Count; ++i) {
      list[i] = items[i];
      parse(list[i].shape);
    }
  }
  constexpr argument_table table(std::string_view op, std::string_view variant = "",
                                 std::optional<divisibility> relation = {}) const {
    return {op, variant, list, dims, relation};
  }

 private:
  constexpr void parse(shape_rule& shape) {
    std::string_view rest = shape.text;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      const std::string_view name = rest.substr(0, comma);
      rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
      if (name == "*") {
        shape.leading = true;
      } else {
        shape.dims[shape.rank++] = index_of(name);
      }
    }
  }
  constexpr uint8_t index_of(std::string_view name) {
    uint8_t i = 0;
    while (!dims.at(i).empty() && dims[i] != name) ++i;
    dims[i] = name;
    return i;
  }
};

inline void check(const argument_table& table, std::initializer_list<value> values) {
  check(table, std::span(values.begin(), values.size()));
}
inline void check_dense(const argument_table& table, std::initializer_list<value> values) {
  const argument* a = table.arguments.data();
  for (const value& v : values) {
    if (v.tensor != nullptr) check_layout(table, *a, *v.tensor);
    ++a;
  }
}
struct enter_arguments {
  explicit enter_arguments(const argument_table& table) { enter(table); }
};
// The backend of a forward, for its backward, which autograd runs on another thread.
inline void save_backend(torch::autograd::AutogradContext* ctx) {
  if (current_backend() == backend::automatic) return;
  ctx->saved_data["backend"] = static_cast<int64_t>(current_backend());
}
inline backend saved_backend(torch::autograd::AutogradContext* ctx) {
  const auto found = ctx->saved_data.find("backend");
  return found == ctx->saved_data.end() ? backend::automatic : backend(found->second.toInt());
}

namespace detail {

template <class... Tensors>
torch::autograd::variable_list as_list(const std::tuple<Tensors...>& tensors) {
  return std::apply([](const Tensors&... t) { return torch::autograd::variable_list{t...}; },
                    tensors);
}
inline torch::autograd::variable_list as_list(const at::Tensor& tensor) { return {tensor}; }

template <class... Tensors>
void from_list(std::tuple<Tensors...>& tensors, torch::autograd::variable_list& list) {
  auto next = list.begin();
  std::apply([&](Tensors&... t) { ((t = std::move(*next++)), ...); }, tensors);
}
inline void from_list(at::Tensor& tensor, torch::autograd::variable_list& list) {
  tensor = std::move(list[0]);
}

// Calls an op below autograd, and raises where its results are differentiated.
template <class Results, class... Args>
struct not_differentiable : torch::autograd::Function<not_differentiable<Results, Args...>> {
  using handle = c10::TypedOperatorHandle<Results(Args...)>;

  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx,
                                                const char* name, const handle& op, Args... args) {
    ctx->saved_data["name"] = name;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return as_list(op.call(args...));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, ctx->saved_data["name"].toStringRef(),
                                ": double backward is not supported");
  }
};

}  // namespace detail

// The Autograd kernel of the op that computes the gradients of the public function `name`. Those
// are not differentiable themselves: without this, a double backward would be silently wrong.
// `recorded`: whether a tensor on which they depend needs a gradient (`records_gradient`).
template <class Results, class... Args>
Results once_differentiable(const char* name, const c10::TypedOperatorHandle<Results(Args...)>& op,
                            c10::DispatchKeySet keys, bool recorded,
                            std::type_identity_t<Args>... args) {
  const without_autocast guard;
  if (!recorded) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return op.redispatch(keys & c10::after_autograd_keyset, args...);
  }
  auto list = detail::not_differentiable<Results, Args...>::apply(name, op, args...);
  Results results;
  detail::from_list(results, list);
  return results;
}

// The op with the signature of `implementation`. Keep it in a static variable: the look-up is by
// name.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name, Signature& implementation) {
  static_cast<void>(implementation);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
}

// Defines `name`, a short form of an op: a call of it with the defaults of what the form leaves
// out. (An argument that Python leaves out costs the host as much as one that it gives.)
template <class F>
void define_short_form(torch::Library& m, const std::string& name, const std::string& signature,
                       F* call) {
  m.def(torch::schema((name + signature).c_str()), {at::Tag::pt2_compliant_tag});
  for (const auto key : {c10::DispatchKey::CompositeImplicitAutograd,
                         c10::DispatchKey::CompositeImplicitAutogradNestedTensor}) {
    m.impl(name.c_str(), torch::dispatch(key, call));
  }
}

}  // namespace thunderkittens
