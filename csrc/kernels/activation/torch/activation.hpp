// What the ops of this family share on torch's side: y = f(x), and gated y = f(gate) · up.
#pragma once

#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <algorithm>
#include <string_view>

#include "binding/launch.h"
#include "binding/op.h"
#include "kernels/activation/activation.h"

namespace thunderkittens::activations {

// f of an op that has one, or by torch's names "tanh" and "none"; and the name.
inline activation function_of() { return activation::silu; }
inline activation function_of(std::string_view approximate) {
  return approximate == "tanh" ? activation::gelu_tanh : activation::gelu_erf;
}
inline const char* name_of(activation f) { return f == activation::gelu_tanh ? "tanh" : "none"; }

// f(x) and dy · f'(x), by ATen, in the dtype of their arguments.
inline Tensor activate(activation f, const Tensor& x) {
  return f == activation::silu ? at::silu(x) : at::gelu(x, name_of(f));
}
inline Tensor activate_backward(activation f, const Tensor& dy, const Tensor& x) {
  return f == activation::silu ? at::silu_backward(dy, x) : at::gelu_backward(dy, x, name_of(f));
}

// In the dtype in which ATen computes.
inline Tensor upcast(const Tensor& x) { return x.to(statistics_dtype(x)); }

// Tensors of one shape as the kernels read them: one row where all are contiguous, else rows that
// are one distance apart, for which some may have to be copied. Keep it until the launch has
// returned.
template <size_t Count>
struct operands_view {
  std::array<rows_view, Count> tensors;
  int64_t rows, width;

  explicit operands_view(const std::array<const Tensor*, Count>& given) {
    const bool flat = std::ranges::all_of(given, [](auto* t) { return t->is_contiguous(); });
    width = flat ? given[0]->numel() : given[0]->size(-1);
    rows = given[0]->numel() / width;
    for (size_t i = 0; i < Count; ++i) {
      tensors[i] = flat ? rows_view{*given[i], width} : as_rows(*given[i]);
    }
  }
};

// The results of Op that `needs` asks for, of tensors of one shape: by the kernel, whose Problem
// and Tensors have a stride and an address of each in this order and an address of each result, or
// by_aten(), rounded once.
template <class Op, class Problem, class Tensors, size_t Count>
results_of<Op> compute(const kernel& wanted, activation f,
                       const std::array<const Tensor*, Count>& given,
                       const std::array<bool, Op::results.size>& needs, const auto& by_aten) {
  const Tensor& like = *given.back();
  const auto for_needed = [&](const auto& make) {
    results_of<Op> results;
    for (size_t i = 0; i < results.size(); ++i) {
      if (needs[i]) results[i] = make(i);
    }
    return results;
  };
  const auto make_empty = [&](size_t) { return empty_contiguous(like); };
  const bool nothing = like.numel() == 0 || std::ranges::count(needs, true) == 0;
  if (nothing && explaining() == nullptr) return for_needed(make_empty);
  const std::optional<dtype> type = kernel_dtype(like.scalar_type());
  const decision d = decide(wanted, like.device(), type ? "" : "float64 is computed by torch");
  if (d.explained) {
    const bool notes = d.on != nullptr && requires { typename Op::backward; };
    for (size_t i = 0; notes && i < Count; ++i) {
      if (!given[i]->is_contiguous()) note_copy(*given[i], Op::arguments.list[i].name);
    }
    return {};
  }
  if (d.on == nullptr) {
    return for_needed([&, all = by_aten()](size_t i) {
      return exactly_contiguous(all[i].to(like.scalar_type()));
    });
  }
  const results_of<Op> results = for_needed(make_empty);
  const operands_view<Count> in(given);
  [&]<size_t... I, size_t... R>(std::index_sequence<I...>, std::index_sequence<R...>) {
    launch(d, Problem{f, in.rows, in.width, in.tensors[I].stride..., *type},
           Tensors{input(in.tensors[I].tensor)..., output(results[R])...});
  }(std::make_index_sequence<Count>(), std::make_index_sequence<Op::results.size>());
  return results;
}

// ---- Gated functions ----------------------------------------------------------------------------

inline constexpr argument_list kGated{
    tensor("gate", dtype_rule::floating, "*"),
    tensor("up", dtype_rule::same, "*"),
};
inline constexpr argument_list kGatedBackward{
    tensor("dy", dtype_rule::floating, "*"),
    tensor("gate", dtype_rule::same, "*"),
    tensor("up", dtype_rule::same, "*"),
    needs<2>(),
};
inline constexpr argument_list kApproximate{
    word("approximate", "tanh", "none").otherwise("\"none\"").by_name(),
};

// Mixed dtypes are promoted under autocast.
template <class Op, const kernel& Forward>
struct gated {
  static constexpr autocast_rule autocast = autocast_rule::promote;
  static constexpr result_list results{like("y", "gate")};

  static tensor_array<1> compute(const Tensor& gate, const Tensor& up, const auto&... named) {
    const activation f = function_of(named...);
    const auto by_aten = [&] { return tensor_array<1>{activate(f, upcast(gate)) * upcast(up)}; };
    return activations::compute<Op, gated_forward_problem, gated_forward_tensors>(
        Forward, f, std::array{&gate, &up}, {true}, by_aten);
  }
};

// dgate = dy · up · f'(gate) and dup = dy · f(gate), as far as they are needed.
template <class Op, const kernel& Backward>
struct gated_backward {
  static constexpr result_list results{like("dgate", "gate"), like("dup", "up")};

  static tensor_array<2> compute(const Tensor& dy, const Tensor& gate, const Tensor& up,
                                 const std::array<bool, 2>& needs, const auto&... named) {
    const activation f = function_of(named...);
    const auto by_aten = [&] {
      const Tensor d = upcast(dy), x = upcast(gate);
      return tensor_array<2>{needs[0] ? activate_backward(f, d * upcast(up), x) : Tensor(),
                             needs[1] ? d * activate(f, x) : Tensor()};
    };
    return activations::compute<Op, gated_backward_problem, gated_backward_tensors>(
        Backward, f, std::array{&dy, &gate, &up}, needs, by_aten);
  }
};

}  // namespace thunderkittens::activations
