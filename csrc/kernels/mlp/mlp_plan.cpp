// linear_gelu, its backward and column_sums: the choice of a kernel, and the launch.
#include <limits>

#include "kernels/mlp/mlp.h"
#include "kittens/host/tensor_map_request.h"
#include "kittens/host/text.h"

namespace thunderkittens {
namespace {

using kittens::host::ceil_div;
using kittens::host::kernel_handle;
using kittens::host::kMaxTensorStride;
using kittens::host::kTensorAlignment;
using kittens::host::text;

std::string why_not_rows(const char* name, int64_t stride, int64_t count, dtype type) {
  const int64_t bytes = stride * bytes_of(type);
  if (count <= 1 || (bytes > 0 && bytes % kTensorAlignment == 0 && bytes < kMaxTensorStride)) {
    return "";
  }
  return text("rows of ", name, " are ", bytes, " bytes apart, not a multiple of ",
              kTensorAlignment);
}

// Of both products; `x` is the one of the result's rows.
std::string why_no_product(const auto& p, const char* x, int64_t x_stride) {
  constexpr int64_t kMost = std::numeric_limits<int>::max() / 2;
  if (p.type == dtype::float32) return "float32 is computed by torch";
  if (p.function == activation::silu) return "silu is a function of gated calls alone";
  if (p.rows <= 0 || p.inner <= 0 || p.outer <= 0) return "there are no products to add up";
  if (p.rows > kMost || p.inner > kMost || p.outer > kMost) {
    return text("a product of ", p.rows, " rows, ", p.outer, " columns and ", p.inner,
                " terms is too large");
  }
  constexpr int64_t kMultiple = 8;
  if (p.outer % kMultiple != 0) {
    return text("a hidden layer of ", p.outer, " columns, not a multiple of ", kMultiple,
                ", is computed by torch");
  }
  if (std::string why = why_not_rows(x, x_stride, p.rows, p.type); !why.empty()) return why;
  return why_not_rows("the weight", p.weight_stride, p.k_major ? p.outer : p.inner, p.type);
}

float* partial_of(const workspace& work) { return static_cast<float*>(work.memory); }

}  // namespace

std::string why_unsupported(const linear_gelu_problem& p) {
  return why_no_product(p, "x", p.x_stride);
}
std::string why_unsupported(const linear_gelu_backward_problem& p) {
  return why_no_product(p, "dy", p.dy_stride);
}
std::string why_unsupported(const column_sums_problem& p) {
  const int64_t run = kTensorAlignment / bytes_of(p.type);
  if (p.width % run != 0) return text(p.width, " columns are not a multiple of ", run);
  return why_not_rows("x", p.stride, p.rows, p.type);
}

// Of few rows the products have too few tiles to hide their epilogues; the longer their sums are,
// the less is gained behind them, and torch's products are faster then. (An H100's:
// benchmarks/mlp.md.)
bool is_faster_by_torch(int64_t rows, int64_t inner, const device& d) {
  constexpr int64_t kLeastRows = 1024, kMostInner = 2048;
  return !d.is_simulated() && (rows < kLeastRows || inner > kMostInner);
}

linear_gelu_plan plan(const linear_gelu_problem& p, const device& d) {
  static const kernel_handle kernel(kLinearGelu);
  refuse_unsupported(kernel.name(), p);
  return {p, kernel.on(d)};
}
linear_gelu_backward_plan plan(const linear_gelu_backward_problem& p, const device& d) {
  static const kernel_handle kernel(kLinearGeluBackward);
  refuse_unsupported(kernel.name(), p);
  return {p, kernel.on(d), {.bytes = dbias_parts(p.rows) * p.outer * int64_t{sizeof(float)}}};
}
column_sums_plan plan(const column_sums_problem& p, const device& d) {
  static const kernel_handle kernel(kColumnSums);
  refuse_unsupported(kernel.name(), p);
  const int64_t parts = ceil_div(p.rows, rows_of_part(p.rows));
  return {p, kernel.on(d), {.bytes = parts * p.width * int64_t{sizeof(float)}}};
}

void launch(const linear_gelu_plan& plan, const linear_gelu_tensors& tensors, const workspace&,
            stream s) {
  plan.kernel.launch({plan.problem, tensors}, s);
}
void launch(const linear_gelu_backward_plan& plan, const linear_gelu_backward_tensors& tensors,
            const workspace& work, stream s) {
  plan.kernel.launch({plan.problem, tensors, partial_of(work)}, s);
}
void launch(const column_sums_plan& plan, const column_sums_tensors& tensors, const workspace& work,
            stream s) {
  plan.kernel.launch({plan.problem, tensors, partial_of(work)}, s);
}

}  // namespace thunderkittens
