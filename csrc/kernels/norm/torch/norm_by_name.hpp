// What the ops of the family compute, once for all: each from those arguments, and to those
// results, that its description names.
#pragma once

#include <ATen/ops/randint.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "binding/by_name.h"
#include "binding/op.h"
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
inline constexpr result kSumResult{
    .name = "sum", .rule = result_rule::like, .like = "residual", .depends_on = {"x", "residual"}};

// Raises what the descriptions do not.
inline void check_dropout(const char* op, const Tensor& x, double p, const optional_tensor& seed) {
  TORCH_CHECK_VALUE(p < 1.0, op, ": dropout_p must be < 1, got ", p);
  if (!seed) return;
  TORCH_CHECK_TYPE(seed->scalar_type() == at::kLong, op, ": seed must have dtype int64, got ",
                   seed->scalar_type());
  TORCH_CHECK_VALUE(seed->sym_numel() == 1, op, ": seed must have one element, got shape ",
                    seed->sym_sizes());
  TORCH_CHECK_VALUE(seed->device() == x.device(), op, ": seed must be on ", x.device(),
                    " (x's device), got ", seed->device());
}

// The seed to use: none where nothing is dropped, the one given, or one from torch's generator,
// drawn on x's device, so that a CUDA graph draws a new one at each replay.
inline optional_tensor seed_of(const Tensor& x, double p, bool training,
                               const optional_tensor& seed) {
  if (!training || !(p > 0.0) || explaining() != nullptr) return std::nullopt;
  if (seed) return seed;
  return at::randint(std::numeric_limits<int64_t>::max(), {1},
                     at::TensorOptions(x.device()).dtype(at::kLong));
}

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
tensor_array<Count> those_at(const std::array<size_t, Count>& places, tensor_array<4> all) {
  tensor_array<Count> results;
  for (size_t i = 0; i < Count; ++i) results[i] = std::move(all[places[i]]);
  return results;
}

// What Op, which is Member of the family, computes.
template <class Op, const norm_member& Member>
struct norm_by_name {
  static constexpr autocast_rule autocast = autocast_rule::promote;

  static auto compute(bool wants_statistics, const auto&... args) {
    constexpr auto kPlaces = places_among<Op>({"y", "sum", "mean", "rstd"});
    const auto given = by_name<Op>(args...);
    const Tensor& x = given("x"_name);
    const double dropout_p = given("dropout_p"_name, 0.0);
    return those_at(
        kPlaces,
        norm_forward(Member,
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
                     wants_statistics));
  }
};

template <class Op, const norm_member& Member>
struct norm_backward_by_name {
  static auto compute(const auto&... args) {
    constexpr auto kPlaces = places_among<Op>({"dx", "dresidual", "dweight", "dbias"});
    const auto given = by_name<Op>(args...);
    std::array<bool, 4> needs{};
    for (size_t i = 0; i < kPlaces.size(); ++i) needs[kPlaces[i]] = given("needs"_name)[i];
    return those_at(kPlaces,
                    norm_backward(Member, {.dy = given("dy"_name),
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
template <class Op, const norm_member& Member>
struct add_norm_by_name : norm_by_name<Op, Member> {
  static constexpr size_t kReturned = 2;  // y and the sum
  static constexpr bool kRandom = true;

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

template <class Op, const norm_member& Member>
struct add_norm_backward_by_name : norm_backward_by_name<Op, Member> {
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
