// linear_cross_entropy, computed: cross_entropy of x · weightᵀ + bias, whose logits stand in
// memory a chunk at a time.
//
// The rows of x go through in chunks. Of each, torch's matrix product makes the logits, rounded to
// x's dtype as torch.linear's are; cross_entropy's kernel makes the loss, and writes the logits'
// gradient in their place; and two more products make of it dx, and a part of dweight, which is
// summed up in float32 (float64 for float64). So the forward gives the gradients too, as if that of
// the loss were 1, and the backward only multiplies. With a reduction of "none" that cannot be:
// there the backward goes through the chunks once more.
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/torch/cross_entropy_call.hpp"

namespace thunderkittens {
namespace {

const kernel kLinearCrossEntropyChunksKernel("linear_cross_entropy", kCrossEntropyForward);

// ---- Chunks -------------------------------------------------------------------------------------

// Rows of a chunk: a power of two whose logits take at most 256 MiB, or as much as weight where
// that is more, but 16 rows at least. Each chunk reads and writes the sum of dweight, which costs
// products of 700 TFLOP/s about 230 / rows of their time, whatever the vocabulary. All `rows`,
// where their logits take no more than that sum in float32 would, which one chunk does without.
int64_t default_chunk_rows(const Tensor& weight, int64_t rows, bool sums_dweight) {
  const auto bytes = static_cast<int64_t>(weight.nbytes());
  const int64_t row_bytes = weight.size(0) * weight.element_size();
  const int64_t sum_bytes = weight.element_size() < 4 && sums_dweight ? 4 * weight.numel() : 0;
  if (rows * row_bytes <= sum_bytes) return rows;
  const int64_t most = std::max(int64_t{256} << 20, bytes);
  int64_t chunk = 16;
  while (2 * chunk * row_bytes <= most) chunk *= 2;
  return chunk;
}

// Columns of the logits, which are rows of weight.
struct columns {
  int64_t first, size;

  Tensor of(const Tensor& t, int64_t dim) const { return t.narrow(dim, first, size); }
};

// The vocabulary as products take it. Those of 16 bits leave their fast kernels where a dimension
// is no multiple of 8, so its at most 7 last columns have products of their own.
std::vector<columns> product_columns(const Tensor& x, int64_t vocabulary) {
  const int64_t rest = x.element_size() == 2 ? vocabulary % 8 : 0, body = vocabulary - rest;
  if (rest == 0 || body == 0) return {{0, vocabulary}};
  return {{0, body}, {body, rest}};
}

// sum = a · b, or sum += a · b. Where sum has float32 and a and b have 16 bits, nothing is rounded
// to these.
void add_product(Tensor sum, const Tensor& a, const Tensor& b, bool first) {
  const at::ScalarType type = sum.scalar_type();
  if (a.scalar_type() == type) {
    first ? at::mm_out(sum, a, b) : sum.addmm_(a, b);
  } else if (a.is_cuda()) {
    first ? at::mm_out(sum, a, b, type) : at::addmm_out(sum, sum, a, b, type);
  } else {
    const Tensor a_upcast = a.to(type), b_upcast = b.to(type);
    first ? at::mm_out(sum, a_upcast, b_upcast) : sum.addmm_(a_upcast, b_upcast);
  }
}

// The gradients of one call, as they grow chunk by chunk. Those that are not wanted are undefined.
class gradient_sums {
 public:
  gradient_sums(const linear_loss_call& c, std::array<bool, 3> needs, int64_t chunk)
      : columns_(product_columns(c.x, c.weight.size(0))),
        dx_(needs[0] ? empty_contiguous(c.x) : Tensor()),
        sum_type_(chunk < c.targets.numel() ? statistics_dtype(c.x) : c.x.scalar_type()),
        dweight_(needs[1] ? sum_like(c.weight) : Tensor()),
        dbias_(needs[2] ? sum_like(*c.bias) : Tensor()) {
    if (!dx_.defined()) return;
    dx_rows_ = dx_.view({c.targets.numel(), c.x.size(-1)});
    if (columns_.size() == 1) return;
    dx_room_ = at::empty({chunk, c.x.size(-1)}, c.x.options().dtype(statistics_dtype(c.x)));
  }

  // x, dlogits: the chunk's rows from `first` on.
  void add(const Tensor& x, const Tensor& dlogits, const Tensor& weight, int64_t first) {
    if (dx_.defined()) add_dx(dlogits, weight, dx_rows_.narrow(0, first, x.size(0)));
    if (dweight_.defined()) {
      for (const columns& some : columns_) {
        add_product(some.of(dweight_, 0), some.of(dlogits, 1).t(), x, first == 0);
      }
    }
    if (!dbias_.defined()) return;
    const Tensor dbias = dlogits.sum(0, /*keepdim=*/false, sum_type_);
    first == 0 ? dbias_.copy_(dbias) : dbias_.add_(dbias);
  }
  // In the dtypes of x, weight and bias; undefined where nothing is wanted.
  tensor_array<3> results(const Tensor& x) const {
    const auto result = [&](const Tensor& t) {
      return t.defined() ? t.to(x.scalar_type()) : Tensor();
    };
    return {result(dx_), result(dweight_), result(dbias_)};
  }

 private:
  Tensor sum_like(const Tensor& t) const {
    return at::empty(t.sizes(), t.options().dtype(sum_type_));
  }
  // Of several products the sum is rounded, not each.
  void add_dx(const Tensor& dlogits, const Tensor& weight, const Tensor& dx) {
    if (columns_.size() == 1) return add_product(dx, dlogits, weight, /*first=*/true);
    const Tensor sum = dx_room_.narrow(0, 0, dx.size(0));
    for (const columns& some : columns_) {
      add_product(sum, some.of(dlogits, 1), some.of(weight, 0), some.first == 0);
    }
    dx.copy_(sum);
  }

  std::vector<columns> columns_;
  Tensor dx_, dx_rows_, dx_room_;  // dx_room_: a chunk's sum, where there are several products
  at::ScalarType sum_type_;
  Tensor dweight_, dbias_;
};

// The logits of a chunk, rounded to x's dtype.
void compute_logits(const linear_loss_call& c, const Tensor& x, const Tensor& logits) {
  for (const columns& some : product_columns(x, c.weight.size(0))) {
    Tensor result = some.of(logits, 1);
    const Tensor weight_t = some.of(c.weight, 0).t();
    c.bias ? at::addmm_out(result, some.of(*c.bias, 0), x, weight_t)
           : at::mm_out(result, x, weight_t);
  }
}

// Goes through the chunks of a call. loss [...]: written, where it is defined; dloss [...]: each
// row's gradient is multiplied by it, where it is defined.
tensor_array<3> go_through(const decision& d, const linear_loss_call& c, const loss_options& o,
                           const Tensor& loss, const Tensor& dloss, std::array<bool, 3> needs) {
  const Tensor targets = c.targets.contiguous().view(-1);
  const int64_t rows = targets.numel(), vocabulary = c.weight.size(0);
  const Tensor x = c.x.reshape({rows, c.x.size(-1)});
  const int64_t chunk =
      std::min(rows, c.chunk_rows.value_or(default_chunk_rows(c.weight, rows, needs[1])));
  const bool differentiate = needs[0] || needs[1] || needs[2];

  // Each row begins at a multiple of 16 bytes: products and kernels are faster so.
  const int64_t unit = 16 / x.element_size(), pitch = (vocabulary + unit - 1) / unit * unit;
  const Tensor room = at::empty({chunk, pitch}, x.options());
  const Tensor counts =
      differentiate && o.reduce == loss_reduction::mean ? count_targets(d, o, targets) : Tensor();
  gradient_sums sums(c, needs, chunk);
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t count = std::min(chunk, rows - first);
    const auto part = [&](const Tensor& t) {
      return t.defined() ? t.view(-1).narrow(0, first, count) : Tensor();
    };
    const Tensor x_part = x.narrow(0, first, count);
    const Tensor logits = room.narrow(0, 0, count).narrow(1, 0, vocabulary);
    compute_logits(c, x_part, logits);
    compute_rows(d, o,
                 {.logits = logits,
                  .targets = part(targets),
                  .loss = part(loss),
                  .gradient = differentiate ? logits : Tensor(),
                  .counts = counts,
                  .dloss = part(dloss)});
    if (differentiate) sums.add(x_part, logits, c.weight, first);
  }
  return sums.results(x);
}

bool is_empty(const linear_loss_call& c) { return c.targets.numel() == 0 || c.weight.size(0) == 0; }

// The gradients where there are no rows, or no columns: sums over nothing.
tensor_array<3> zero_gradients(const linear_loss_call& c, std::array<bool, 3> needs) {
  const auto zeros = [&](bool needed, const optional_tensor& like) {
    return needed ? at::zeros(like->sizes(), like->options()) : Tensor();
  };
  return {zeros(needs[0], c.x), zeros(needs[1], c.weight), zeros(needs[2], c.bias)};
}

void check_columns(const linear_loss_call& c, const loss_options& o) {
  check_targets("linear_cross_entropy", o, c.targets, c.weight.size(0), "weight.size(-2)");
}

}  // namespace

tensor_array<4> linear_cross_entropy_forward(const linear_loss_call& c, std::array<bool, 3> needs) {
  const loss_options o = c.options();
  const bool empty = is_empty(c);
  decision d;
  if (!empty || explaining() != nullptr) {
    d = decide_loss(kLinearCrossEntropyChunksKernel, c.x, c.weight.size(0));
    if (d.explained) return {};
  }
  if (d.on == nullptr) check_columns(c, o);
  const Tensor targets = c.targets.contiguous();
  const Tensor loss = at::empty(targets.sizes(), c.x.options().dtype(statistics_dtype(c.x)));
  if (empty) {
    loss.zero_().masked_fill_(targets.ne(o.ignore_index), std::numeric_limits<double>::quiet_NaN());
  }
  const auto [dx, dweight, dbias] =
      empty ? zero_gradients(c, needs) : go_through(d, c, o, loss, Tensor(), needs);
  return {reduce_losses(d, o, loss, targets), dx, dweight, dbias};
}

tensor_array<3> linear_cross_entropy_backward(const linear_loss_call& c, const Tensor& dloss,
                                              std::array<bool, 3> needs) {
  const loss_options o = c.options();
  if (is_empty(c)) return zero_gradients(c, needs);
  const decision d = decide_loss(kLinearCrossEntropyChunksKernel, c.x, c.weight.size(0));
  if (d.explained) return {};
  if (d.on == nullptr) check_columns(c, o);
  return go_through(d, c, o, Tensor(), dloss.contiguous(), needs);
}

}  // namespace thunderkittens
