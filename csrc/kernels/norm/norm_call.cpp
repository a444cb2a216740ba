#include "kernels/norm/norm_call.hpp"

#include <ATen/ATen.h>

#include "binding/launch.h"
#include "binding/layout.h"

namespace thunderkittens {
namespace {

// Contiguous whatever the strides of `like`.
Tensor empty_contiguous(const Tensor& like) {
  return at::empty_symint(like.sym_sizes(), like.options());
}
Tensor empty_statistics(const Tensor& x) {
  return at::empty_symint(x.sym_sizes().slice(0, x.dim() - 1),
                          x.options().dtype(statistics_dtype(x)));
}

// Why the kernels do not take this x; "" when they do.
std::string why_unsupported(const Tensor& x) {
  if (!kernel_dtype(x.scalar_type())) return "float64 is computed by torch";
  if (x.size(-1) > kNormMaxWidth) {
    return c10::str("width ", x.size(-1), " is above ", kNormMaxWidth);
  }
  return "";
}

dtype dtype_of(const optional_tensor& t, dtype otherwise) {
  return t ? *kernel_dtype(t->scalar_type()) : otherwise;
}
const void* data_of(const optional_tensor& t) { return t ? t->const_data_ptr() : nullptr; }
void* data_of(const Tensor& t) { return t.defined() ? t.mutable_data_ptr() : nullptr; }
float* floats_of(const Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; }
optional_tensor contiguous(const optional_tensor& t) {
  return t ? optional_tensor(t->contiguous()) : std::nullopt;
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

struct norm_rows {
  Tensor tensor;
  row_strides strides;
};
norm_rows rows_of(const Tensor& t) {
  if (const auto strides = strides_of(t)) return {t, *strides};
  return {t.contiguous(), {t.size(-1)}};
}

dropout_params dropout_of(double p, const optional_tensor& seed) {
  return seed ? dropout_params::of(p, seed->const_data_ptr<int64_t>()) : dropout_params{};
}

void forward_kernel(const decision& d, const norm_call& call, const norm_results& results) {
  const Tensor& x = call.x;
  const norm_rows x_rows = rows_of(x);
  const rows_view residual = call.residual ? as_rows(*call.residual) : rows_view{};
  const optional_tensor weight = contiguous(call.weight), bias = contiguous(call.bias);
  const dtype type = *kernel_dtype(x.scalar_type());
  launch(d,
         norm_forward_params{
             .x = x_rows.tensor.const_data_ptr(),
             .residual = call.residual ? residual.tensor.const_data_ptr() : nullptr,
             .weight = data_of(weight),
             .bias = data_of(bias),
             .y = data_of(results.y),
             .sum = data_of(results.sum),
             .mean = floats_of(results.mean),
             .rstd = floats_of(results.rstd),
             .rows = x.numel() / x.size(-1),
             .width = x.size(-1),
             .x_rows = x_rows.strides,
             .residual_stride = residual.stride,
             .eps = static_cast<float>(call.eps),
             .weight_offset = weight ? static_cast<float>(call.weight_offset) : 0.0f,
             .round_first = call.round_first,
             .dropout = dropout_of(call.dropout_p, call.seed),
             .type = type,
             .residual_type = dtype_of(call.residual, type),
             .weight_type = dtype_of(weight, type),
             .bias_type = dtype_of(bias, type),
         },
         x.device());
}

void backward_kernel(const decision& d, const norm_backward_call& call,
                     const norm_gradients& results) {
  const Tensor& x = call.x;
  const int64_t width = x.size(-1), rows = x.numel() / width;
  const norm_rows dy_rows = rows_of(call.dy), x_rows = rows_of(x);
  const rows_view dsum = call.dsum ? as_rows(*call.dsum) : rows_view{};
  const optional_tensor weight = contiguous(call.weight);
  const Tensor mean = call.mean.defined() ? call.mean.contiguous() : Tensor();
  const Tensor rstd = call.rstd.contiguous();
  const int count = multiprocessors(d, x.device());
  const bool few = norm_rows_are_few(rows, width, count) && dy_rows.strides.count == 1 &&
                   x_rows.strides.count == 1;
  const int64_t partial_rows = few ? 0 : norm_partial_rows(rows, width, count);
  const Tensor partial =
      !few && (call.needs[kDweight] || call.needs[kDbias])
          ? at::empty({mean.defined() ? 2 : 1, partial_rows, width}, x.options().dtype(at::kFloat))
          : Tensor();
  const dtype type = *kernel_dtype(call.dy.scalar_type());
  launch(d,
         norm_backward_params{
             .dy = dy_rows.tensor.const_data_ptr(),
             .x = x_rows.tensor.const_data_ptr(),
             .dsum = call.dsum ? dsum.tensor.const_data_ptr() : nullptr,
             .weight = data_of(weight),
             .mean = mean.defined() ? mean.const_data_ptr<float>() : nullptr,
             .rstd = rstd.const_data_ptr<float>(),
             .dx = data_of(results[kDx]),
             .dresidual = data_of(results[kDresidual]),
             .dweight = data_of(results[kDweight]),
             .dbias = data_of(results[kDbias]),
             .partial = floats_of(partial),
             .partial_rows = partial_rows,
             .rows = rows,
             .width = width,
             .dy_rows = dy_rows.strides,
             .x_rows = x_rows.strides,
             .dsum_stride = dsum.stride,
             .weight_offset = weight ? static_cast<float>(call.weight_offset) : 0.0f,
             .dropout = dropout_of(call.dropout_p, call.seed),
             .type = type,
             .residual_type = *kernel_dtype(x.scalar_type()),
             .weight_type = dtype_of(weight, type),
             .bias_type = dtype_of(call.bias, type),
         },
         x.device());
}

}  // namespace

Tensor none(const Tensor& like) { return at::empty({0}, like.options()); }

at::ScalarType statistics_dtype(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

bool rounds_first(const char* op, std::string_view casting) {
  TORCH_CHECK_VALUE(casting == "llama" || casting == "gemma", op,
                    ": casting must be \"llama\" or \"gemma\", got \"", casting, "\"");
  return casting == "llama";
}

norm_results empty_results(const norm_member& member, const norm_call& call, bool statistics) {
  return {empty_contiguous(call.x), call.residual ? empty_contiguous(*call.residual) : Tensor(),
          statistics && member.centred ? empty_statistics(call.x) : Tensor(),
          statistics ? empty_statistics(call.x) : Tensor()};
}

norm_gradients empty_gradients(const norm_backward_call& call) {
  const auto like = [&](norm_gradient which, const optional_tensor& t) {
    return call.needs[which] ? empty_contiguous(*t) : Tensor();
  };
  return {like(kDx, call.dy), like(kDresidual, call.x), like(kDweight, call.weight),
          like(kDbias, call.bias)};
}

norm_results norm_forward(const norm_member& member, const norm_call& call, bool statistics) {
  const Tensor& x = call.x;
  if (x.numel() == 0 && explaining() == nullptr) {
    norm_results results = empty_results(member, call, statistics);
    for (Tensor* t : {&results.mean, &results.rstd}) {
      if (t->defined()) t->zero_();
    }
    return results;
  }
  const decision d = decide(member.forward, x.device(), why_unsupported(x));
  if (d.explained) {
    if (d.run != nullptr && !strides_of(x)) note_copy(x, "x");
    if (d.run != nullptr && call.residual) note_copy(*call.residual, "residual");
    return {none(x), none(x), none(x), none(x)};
  }
  if (d.run == nullptr) return norm_forward_aten(member, call);
  const norm_results results = empty_results(member, call, statistics);
  forward_kernel(d, call, results);
  return results;
}

norm_gradients norm_backward(const norm_member& member, const norm_backward_call& call) {
  if (call.x.numel() == 0) {  // sums over no rows
    const norm_gradients results = empty_gradients(call);
    for (const Tensor& t : results) {
      if (t.defined()) t.zero_();
    }
    return results;
  }
  const decision d = decide(member.backward, call.x.device(), why_unsupported(call.x));
  if (d.explained) return {};
  if (d.run == nullptr) return norm_backward_aten(member, call);
  const norm_gradients results = empty_gradients(call);
  backward_kernel(d, call, results);
  return results;
}

}  // namespace thunderkittens
