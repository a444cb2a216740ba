// linear and quantized_linear: what is chosen before a launch, and the launch.
#include <algorithm>
#include <limits>
#include <string>

#include "kernels/linear/linear.h"
#include "kittens/host/ceil_div.h"
#include "kittens/host/tensor_map_request.h"
#include "kittens/host/text.h"

namespace thunderkittens {

using kittens::host::ceil_div;
using kittens::host::text;

namespace {

// Of a quantized weight alone.
std::string why_not_quantized(const linear_problem& p) {
  const int64_t multiple = p.weight == linear_weight::e4m3 ? 16 : 32;
  if (p.in_features % multiple != 0) {
    return text("a quantized weight of ", p.in_features, " columns, not a multiple of ", multiple,
                ", is computed by torch");
  }
  if (p.weight == linear_weight::int4 && p.group % multiple != 0) {
    return text("groups of ", p.group, " columns, not a multiple of ", multiple,
                ", are computed by torch");
  }
  return "";
}

int64_t bytes_of_columns(const linear_problem& p, int64_t columns) {
  return p.weight == linear_weight::plain ? columns * bytes_of(p.type) : columns;
}

}  // namespace

std::string why_unsupported(const linear_problem& p) {
  constexpr int64_t kMost = std::numeric_limits<int>::max() / 4;
  if (p.type == dtype::float32) return "float32 is computed by torch";
  if (p.normalized && p.type == dtype::float16) {
    return "float16, whose products with the norm's weight may overflow, is normalized by torch";
  }
  if (p.normalized && p.in_features % 2 != 0) {
    return text("the norm of an odd number of columns, ", p.in_features, ", is computed by torch");
  }
  const int64_t most = p.weight == linear_weight::plain ? p.kMostRows : p.kFewRows;
  if (p.rows > most) return text(p.rows, " rows are more than ", most);
  if (p.in_features == 0) return "there are no products to add up";
  if (p.weight != linear_weight::plain) {
    if (std::string why = why_not_quantized(p); !why.empty()) return why;
  }
  if (p.in_features > kMost || p.out_features > kMost) {
    return text("a weight of ", p.out_features, " rows and ", p.in_features,
                " columns is too large");
  }
  const int64_t bytes = bytes_of_columns(p, p.weight_stride);
  if (p.out_features > 1 && (bytes % kittens::host::kTensorAlignment != 0 || bytes <= 0 ||
                             bytes >= kittens::host::kMaxTensorStride)) {
    return text("the weight's rows are ", bytes, " bytes apart, not a multiple of ",
                kittens::host::kTensorAlignment);
  }
  return "";
}

namespace {

// Of the generic kernel's blocks, those that a multiprocessor has shared memory for.
int generic_blocks_of_multiprocessor(const device& d) {
  constexpr int kBlockKb = kLinearGenericSharedBytes / 1024 + 1;
  int blocks = 1;
  for (const kittens::host::architecture_facts& facts : kittens::host::kArchitectureFacts) {
    if (facts.major != d.major || facts.minor > d.minor) continue;
    blocks = facts.multiprocessor_shared_kb / kBlockKb;
  }
  return blocks;
}

}  // namespace

// Of 17 to 64 rows, each block reads x as often as it has 128 rows of the weight, and begins and
// ends later than with fewer rows: so with fewer rows of the weight torch's product is faster, if
// nothing is left to do behind it. (An H100's: benchmarks/linear.md.)
bool is_faster_by_torch(const linear_problem& p, const device& d) {
  constexpr int64_t kLeast = 125 * 1024, kLeastGated = 12 * 1024;  // rows of the weight
  if (p.rows <= p.kFewRows || d.is_simulated()) return false;
  return p.gated ? 2 * p.out_features < kLeastGated : p.out_features < kLeast;
}

// A block for each multiprocessor, or as many of the generic kernel as there is room for.
linear_plan plan(const linear_problem& p, const device& d) {
  static const kittens::host::kernel_handle plain(kLinear), of_rows(kLinearRows),
      quantized(kQuantizedLinear);
  const auto& of_plain = p.rows <= p.kFewRows ? plain : of_rows;
  const auto& kernel = p.weight == linear_weight::plain ? of_plain : quantized;
  refuse_unsupported(kernel.name(), p);
  const int64_t groups = ceil_div(p.out_features, int64_t{kLinearGroup});
  const auto at_most = [&](int blocks) {
    return static_cast<int>(std::min<int64_t>(groups, blocks));
  };
  return {{p, kernel.on(d)},
          at_most(d.multiprocessors),
          at_most(d.multiprocessors * generic_blocks_of_multiprocessor(d))};
}

void launch(const linear_plan& plan, const linear_tensors& t, const workspace&, stream s) {
  plan.kernel.launch({plan.problem, t, plan.blocks, plan.generic_blocks}, s);
}

}  // namespace thunderkittens
