// What the ops of the family compute, once for all: each from those arguments, and to those
// results, that its description names.
#pragma once

#include <algorithm>
#include <limits>
#include <string_view>

#include "binding/by_name.h"
#include "binding/record.h"
#include "kernels/norm/torch/norm_call.hpp"

namespace thunderkittens {

// eps of an RMS norm, where None means what it means to torch: the distance from 1 to the next
// number of the dtype that is computed in, which for 16 bits is float32.
inline double eps_of(std::optional<double> eps, const Tensor& x) {
  if (eps) return *eps;
  return x.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                        : std::numeric_limits<float>::epsilon();
}

// The casting that rounds the normalised value to x's dtype before it meets the weight.
inline constexpr std::string_view kRoundFirst = "llama";

// ---- Dropout and the sum, of add_layer_norm and add_rms_norm ------------------------------------
//
//   sum = dropout(x) + residual,   y = norm(sum)

// The sum as it is returned, and saved: without gradient where x and residual need none.
inline constexpr result kSum{
    .name = "sum", .rule = result_rule::like, .like = "residual", .depends_on = {"x", "residual"}};

// Raises what the descriptions do not.
void check_dropout(const char* op, const Tensor& x, double p, const optional_tensor& seed);

// The seed to use: none where nothing is dropped, the one given, or one from torch's generator,
// drawn on x's device, so that a CUDA graph draws a new one at each replay.
optional_tensor seed_of(const Tensor& x, double p, bool training, const optional_tensor& seed);

// ---- Forward and backward -----------------------------------------------------------------------

// The place of each of Op's results among `names`.
template <class Op>
constexpr auto places_among(const std::array<std::string_view, 4>& names) {
  std::array<size_t, Op::results.size> places{};
  for (size_t i = 0; i < places.size(); ++i) {
    places[i] = std::ranges::find(names, Op::results.list[i].name) - names.begin();
  }
  return places;
}
template <size_t Count>
std::array<Tensor, Count> those_at(const std::array<size_t, Count>& places,
                                   std::array<Tensor, 4> all) {
  std::array<Tensor, Count> results;
  for (size_t i = 0; i < Count; ++i) results[i] = std::move(all[places[i]]);
  return results;
}

// What Op, which is Op::member of the family, computes.
template <class Op>
struct norm_by_name {
  // The last argument: whether statistics are wanted.
  static auto compute(const auto&... args) {
    constexpr auto kPlaces = places_among<Op>({"y", "sum", "mean", "rstd"});
    const auto given = by_name<Op>(args...);
    const Tensor& x = given("x"_name);
    const double dropout_p = given("dropout_p"_name, 0.0);
    norm_results r =
        norm_forward(Op::member,
                     {.x = x,
                      .residual = given("residual"_name, kNoTensor),
                      .weight = given("weight"_name),
                      .bias = given("bias"_name, kNoTensor),
                      .eps = eps_of(given("eps"_name), x),
                      .weight_offset = given("weight_offset"_name, 0.0),
                      .round_first = given("casting"_name, std::string_view()) == kRoundFirst,
                      .dropout_p = dropout_p,
                      .seed = seed_of(x, dropout_p, given("training"_name, false),
                                      given("seed"_name, kNoTensor))},
                     /*statistics=*/given.last());
    return those_at(kPlaces,
                    {std::move(r.y), std::move(r.sum), std::move(r.mean), std::move(r.rstd)});
  }
};

template <class Op>
struct norm_backward_by_name {
  static auto compute(const auto&... args) {
    constexpr auto kPlaces = places_among<Op>({"dx", "dresidual", "dweight", "dbias"});
    const auto given = by_name<Op>(args...);
    norm_needs needs{};
    for (size_t i = 0; i < kPlaces.size(); ++i) needs[kPlaces[i]] = given("needs"_name)[i];
    return those_at(kPlaces,
                    norm_backward(Op::member, {.dy = given("dy"_name),
                                               .dsum = given("dsum"_name, kNoTensor),
                                               .x = given("sum"_name, given("x"_name, kUndefined)),
                                               .weight = given("weight"_name),
                                               .bias = given("bias"_name, kNoTensor),
                                               .mean = given("mean"_name, kUndefined),
                                               .rstd = given("rstd"_name),
                                               .needs = needs,
                                               .weight_offset = given("weight_offset"_name, 0.0),
                                               .dropout_p = given("dropout_p"_name, 0.0),
                                               .seed = given("seed"_name, kNoTensor)}));
  }
};

// The same of a sum, with dropout.
template <class Op>
struct add_norm_by_name : norm_by_name<Op> {
  static void check_options(const auto&... args) {
    const auto given = by_name<Op>(args...);
    check_dropout(Op::name, given("x"_name), given("dropout_p"_name), given("seed"_name));
  }

  static auto before(const auto& next, const auto&... args) {
    const auto given = by_name<Op>(args...);
    const optional_tensor seed = seed_of(given("x"_name), given("dropout_p"_name),
                                         given("training"_name), given("seed"_name));
    return given.replacing("seed"_name, seed, next);
  }

  // dx and dresidual are equal where nothing is dropped and the dtypes agree: then the latter is
  // asked for alone, and no tensor is written twice.
  static auto differentiate(const auto& call, const auto&... args) {
    const auto given = by_name<typename Op::backward>(args...);
    auto needs = given("needs"_name);
    const bool one_for_both = needs[0] && !given("seed"_name) &&
                              given("dy"_name).scalar_type() == given("sum"_name).scalar_type();
    if (one_for_both) {
      needs[0] = false;
      needs[1] = true;
    }
    auto gradients = given.replacing("needs"_name, needs, call);
    if (one_for_both) gradients[0] = gradients[1];
    return gradients;
  }
};

template <class Op>
struct add_norm_backward_by_name : norm_backward_by_name<Op> {
  static void check_options(const auto&... args) {
    const auto given = by_name<Op>(args...);
    const optional_tensor& dsum = given("dsum"_name);
    const at::ScalarType type = given("sum"_name).scalar_type();
    TORCH_CHECK_TYPE(!dsum || dsum->scalar_type() == type, Op::name, ": dsum must have dtype ",
                     type, " (sum's dtype), got ", dsum ? dsum->scalar_type() : type);
    check_dropout(Op::name, given("dy"_name), given("dropout_p"_name), given("seed"_name));
  }
};

}  // namespace thunderkittens
