#include "kernels/norm/torch/norm_call.hpp"

#include "binding/launch.h"
#include "binding/layout.h"

namespace thunderkittens {
namespace {

dtype dtype_of(const optional_tensor& t, dtype otherwise) {
  return t ? kernel_dtype(t->scalar_type()).value_or(otherwise) : otherwise;
}

// The rows of a tensor whose leading dimensions collapse into one stride, or, where rows are
// narrow, into two; else empty.
std::optional<row_strides> strides_of(const Tensor& t) {
  if (const std::optional<int64_t> stride = row_stride(t)) return row_strides{*stride};
  const int64_t last = t.dim() - 1, width = t.size(last);
  const bool contiguous = width == 1 || t.stride(last) == 1;
  if (!contiguous || width > kNormNarrowWidth || t.numel() / width > INT32_MAX) return std::nullopt;
  struct level {
    int64_t stride = 0, count = 1;
    bool takes(int64_t size, int64_t step) {
      if (count > 1 && step != stride * count) return false;
      if (count == 1) stride = step;
      count *= size;
      return true;
    }
  } inner, outer;
  for (int64_t i = last - 1; i >= 0; --i) {
    if (t.size(i) == 1) continue;
    const bool taken = (outer.count == 1 && inner.takes(t.size(i), t.stride(i))) ||
                       outer.takes(t.size(i), t.stride(i));
    if (!taken) return std::nullopt;
  }
  return row_strides::of(outer.stride, inner.stride, inner.count);
}

// (Of float64, which no kernel takes, any type.)
norm_forward_problem problem_of(const norm_member& member, const norm_call& call) {
  const Tensor& x = call.x;
  const int64_t width = x.size(-1);
  const dtype type = dtype_of(x, dtype::float32);
  return {
      .op = member.op,
      .rows = x.numel() / width,
      .width = width,
      .x_rows = strides_of(x).value_or(row_strides{width}),
      .residual_stride = call.residual ? row_stride(*call.residual).value_or(width) : 0,
      .eps = static_cast<float>(call.eps),
      .weight_offset = static_cast<float>(call.weight_offset),
      .round_first = call.round_first,
      .dropout_p = call.dropout_p,
      .type = type,
      .residual_type = dtype_of(call.residual, type),
      .weight_type = dtype_of(call.weight, type),
      .bias_type = dtype_of(call.bias, type),
  };
}

norm_backward_problem problem_of(const norm_member& member, const norm_backward_call& call) {
  const Tensor& x = call.x;
  const int64_t width = x.size(-1);
  const dtype type = dtype_of(call.dy, dtype::float32);
  return {
      .op = member.op,
      .rows = x.numel() / width,
      .width = width,
      .dy_rows = strides_of(call.dy).value_or(row_strides{width}),
      .x_rows = strides_of(x).value_or(row_strides{width}),
      .dsum_stride = call.dsum ? row_stride(*call.dsum).value_or(width) : 0,
      .weight_offset = static_cast<float>(call.weight_offset),
      .dropout_p = call.dropout_p,
      .parameter_gradients = call.needs[kDweight] || call.needs[kDbias],
      .type = type,
      .residual_type = dtype_of(x, type),
      .weight_type = dtype_of(call.weight, type),
      .bias_type = dtype_of(call.bias, type),
  };
}

// What the kernels read: the tensor where its strides are the problem's, else a copy.
Tensor in_rows(const Tensor& t) { return strides_of(t) ? t : t.contiguous(); }
Tensor in_even_rows(const optional_tensor& t) { return t ? as_rows(*t).tensor : Tensor(); }

void forward_kernel(const decision& d, const norm_forward_problem& problem, const norm_call& call,
                    const tensor_array<4>& results) {
  launch(d, problem,
         norm_forward_tensors{
             .x = input(in_rows(call.x)),
             .residual = input(in_even_rows(call.residual)),
             .weight = input(contiguous(call.weight)),
             .bias = input(contiguous(call.bias)),
             .y = output(results[kY]),
             .sum = output(results[kSum]),
             .mean = output<float>(results[kMean]),
             .rstd = output<float>(results[kRstd]),
             .seed = input<int64_t>(call.seed),
         });
}

void backward_kernel(const decision& d, const norm_backward_problem& problem,
                     const norm_backward_call& call, const tensor_array<4>& results) {
  launch(d, problem,
         norm_backward_tensors{
             .dy = input(in_rows(call.dy)),
             .x = input(in_rows(call.x)),
             .dsum = input(in_even_rows(call.dsum)),
             .weight = input(contiguous(call.weight)),
             .mean = input<float>(contiguous(call.mean)),
             .rstd = input<float>(call.rstd.contiguous()),
             .dx = output(results[kDx]),
             .dresidual = output(results[kDresidual]),
             .dweight = output(results[kDweight]),
             .dbias = output(results[kDbias]),
             .seed = input<int64_t>(call.seed),
         });
}

tensor_array<4> empty_results(const norm_member& member, const norm_call& call, bool statistics) {
  return {empty_contiguous(call.x), call.residual ? empty_contiguous(*call.residual) : Tensor(),
          statistics && member.centred() ? empty_statistics(call.x) : Tensor(),
          statistics ? empty_statistics(call.x) : Tensor()};
}

tensor_array<4> empty_gradients(const norm_backward_call& call) {
  const auto like = [&](norm_gradient which, const optional_tensor& t) {
    return call.needs[which] ? empty_contiguous(*t) : Tensor();
  };
  return {like(kDx, call.dy), like(kDresidual, call.x), like(kDweight, call.weight),
          like(kDbias, call.bias)};
}

// What there is of no rows, and what sums over none are.
tensor_array<4> zeroed(const tensor_array<4>& results) {
  for (const Tensor& t : results) {
    if (t.defined() && t.numel() > 0) t.zero_();
  }
  return results;
}

}  // namespace

tensor_array<4> norm_forward(const norm_member& member, const norm_call& call, bool statistics) {
  const Tensor& x = call.x;
  if (x.numel() == 0 && explaining() == nullptr) {
    return zeroed(empty_results(member, call, statistics));
  }
  const norm_forward_problem problem = problem_of(member, call);
  const decision d = decide(member.forward, x, problem);
  if (d.explained) {
    if (d.on != nullptr && !strides_of(x)) note_copy(x, "x");
    if (d.on != nullptr && call.residual) note_copy(*call.residual, "residual");
    return {};
  }
  if (d.on == nullptr) return norm_forward_aten(member, call);
  const tensor_array<4> results = empty_results(member, call, statistics);
  forward_kernel(d, problem, call, results);
  return results;
}

tensor_array<4> norm_backward(const norm_member& member, const norm_backward_call& call) {
  if (call.x.numel() == 0) return zeroed(empty_gradients(call));
  const norm_backward_problem problem = problem_of(member, call);
  const decision d = decide(member.backward, call.x, problem);
  if (d.explained) return {};
  if (d.on == nullptr) return norm_backward_aten(member, call);
  const tensor_array<4> results = empty_gradients(call);
  backward_kernel(d, problem, call, results);
  return results;
}

}  // namespace thunderkittens
