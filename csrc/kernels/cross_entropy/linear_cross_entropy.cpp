// linear_cross_entropy as torch ops: cross_entropy of x · weightᵀ + bias, whose logits never stand
// in memory all at once.
//
// The rows of x go through in chunks. Of each, torch's matrix product makes the logits, rounded to
// x's dtype as torch.linear's are; cross_entropy's kernel makes the loss, and writes the logits'
// gradient in their place; and two more products make of it dx, and a part of dweight, which is
// summed up in float32 (float64 for float64). So the forward gives the gradients too, as if that of
// the loss were 1, and the backward only multiplies. With a reduction of "none" that cannot be:
// there the backward goes through the chunks once more.
#include <ATen/ATen.h>

#include "kernels/cross_entropy/cross_entropy_call.hpp"
#include "kernels/cross_entropy/linear_cross_entropy.hpp"

namespace thunderkittens {
namespace {

constexpr arguments kForwardArguments({
    tensor("x", dtype_rule::floating, "*,H"),
    tensor("weight", dtype_rule::same, "V,H"),
    tensor("targets", dtype_rule::index, "*"),
    optional(tensor("bias", dtype_rule::same, "V")),
    number("label_smoothing", 0.0),
    number("z_loss", 0.0),
});
constexpr arguments kBackwardArguments({
    tensor("x", dtype_rule::floating, "*,H"),
    tensor("dloss", dtype_rule::statistics, "*"),
    tensor("loss", dtype_rule::statistics, "*"),
    tensor("weight", dtype_rule::same, "V,H"),
    tensor("targets", dtype_rule::index, "*"),
    optional(tensor("bias", dtype_rule::same, "V")),
    number("label_smoothing", 0.0),
    number("z_loss", 0.0),
});
constexpr argument_table kForwardTable = kForwardArguments.table("linear_cross_entropy");
constexpr argument_table kBackwardTable = kBackwardArguments.table("linear_cross_entropy_backward");
const enter_arguments enter_forward(kForwardTable), enter_backward(kBackwardTable);

const kernel kKernel("linear_cross_entropy", "cross_entropy_forward");

loss_options checked(const linear_call& c) {
  check(kForwardTable, {c.x, c.weight, c.targets, c.bias, c.label_smoothing, c.z_loss});
  return {"linear_cross_entropy", c.ignore_index, c.reduction, c.label_smoothing, c.z_loss};
}

// ---- Chunks -------------------------------------------------------------------------------------

// Rows of a chunk: a power of two whose logits take at most 256 MiB, but 16 at least. (Half as many
// would add a tenth to the time of the products, by reading and writing dweight for each chunk.)
int64_t default_chunk_rows(const Tensor& x, int64_t vocabulary) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  int64_t rows = 16;
  while (2 * rows * vocabulary * x.element_size() <= kBytes) rows *= 2;
  return rows;
}

// The gradients of one call, as they grow chunk by chunk. Those that are not wanted are undefined.
class gradient_sums {
 public:
  gradient_sums(const linear_call& c, std::array<bool, 3> needs, bool several)
      : dx_(needs[0] ? empty_contiguous(c.x) : Tensor()),
        sum_type_(several ? loss_dtype(c.x) : c.x.scalar_type()),
        dweight_(needs[1] ? sum_like(c.weight) : Tensor()),
        dbias_(needs[2] ? sum_like(*c.bias) : Tensor()) {
    if (dx_.defined()) dx_rows_ = dx_.view({c.targets.numel(), c.x.size(-1)});
  }

  // x, dlogits: the chunk's rows from `first` on.
  void add(const Tensor& x, const Tensor& dlogits, const Tensor& weight, int64_t first) {
    if (dx_.defined()) {
      Tensor dx = dx_rows_.narrow(0, first, x.size(0));
      at::mm_out(dx, dlogits, weight);
    }
    if (dweight_.defined()) add_dweight(x, dlogits.t(), first == 0);
    if (!dbias_.defined()) return;
    const Tensor dbias = dlogits.sum(0, /*keepdim=*/false, sum_type_);
    first == 0 ? dbias_.copy_(dbias) : dbias_.add_(dbias);
  }
  // In the dtypes of x, weight and bias; where nothing is wanted, an empty tensor.
  std::tuple<Tensor, Tensor, Tensor> results(const Tensor& x) const {
    const auto result = [&](const Tensor& t) {
      return t.defined() ? t.to(x.scalar_type()) : at::empty({0}, x.options());
    };
    return {result(dx_), result(dweight_), result(dbias_)};
  }

 private:
  Tensor sum_like(const Tensor& t) const {
    return at::zeros(t.sizes(), t.options().dtype(sum_type_));
  }
  void add_dweight(const Tensor& x, const Tensor& dlogits, bool first) {
    if (x.scalar_type() == sum_type_) {
      first ? at::mm_out(dweight_, dlogits, x) : dweight_.addmm_(dlogits, x);
    } else if (x.is_cuda()) {  // 16-bit products that leave the tensor cores in float32
      first ? at::mm_out(dweight_, dlogits, x, sum_type_)
            : at::addmm_out(dweight_, dweight_, dlogits, x, sum_type_);
    } else {
      dweight_.addmm_(dlogits.to(sum_type_), x.to(sum_type_));
    }
  }

  Tensor dx_, dx_rows_;
  at::ScalarType sum_type_;
  Tensor dweight_, dbias_;
};

// Goes through the chunks of a call. loss [...]: written, where it is defined; dloss [...]: each
// row's gradient is multiplied by it, where it is defined.
std::tuple<Tensor, Tensor, Tensor> go_through(const decision& d, const linear_call& c,
                                              const loss_options& o, const Tensor& loss,
                                              const Tensor& dloss, std::array<bool, 3> needs) {
  const Tensor targets = c.targets.contiguous().view(-1), weight_t = c.weight.t();
  const int64_t rows = targets.numel(), vocabulary = c.weight.size(0);
  const Tensor x = c.x.reshape({rows, c.x.size(-1)});
  const int64_t chunk = std::min(rows, c.chunk_rows.value_or(default_chunk_rows(x, vocabulary)));
  const bool differentiate = needs[0] || needs[1] || needs[2];

  // Each row begins at a multiple of 16 bytes: products and kernels are faster so.
  const int64_t unit = 16 / x.element_size(), pitch = (vocabulary + unit - 1) / unit * unit;
  const Tensor room = at::empty({chunk, pitch}, x.options());
  const Tensor counts =
      differentiate && o.reduce == reduction::mean ? count_targets(d, o, targets) : Tensor();
  gradient_sums sums(c, needs, chunk < rows);
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t count = std::min(chunk, rows - first);
    const auto part = [&](const Tensor& t) {
      return t.defined() ? t.view(-1).narrow(0, first, count) : Tensor();
    };
    const Tensor x_part = x.narrow(0, first, count);
    Tensor logits = room.narrow(0, 0, count).narrow(1, 0, vocabulary);
    c.bias ? at::addmm_out(logits, *c.bias, x_part, weight_t)
           : at::mm_out(logits, x_part, weight_t);
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

// ---- Ops ----------------------------------------------------------------------------------------

bool is_empty(const linear_call& c) { return c.targets.numel() == 0 || c.weight.size(0) == 0; }

// The gradients where there are no rows, or no columns: sums over nothing.
three_tensors zero_gradients(const linear_call& c, std::array<bool, 3> needs) {
  const auto zeros = [&](bool needed, const optional_tensor& like) {
    return needed ? at::zeros(like->sizes(), like->options()) : at::empty({0}, c.x.options());
  };
  return {zeros(needs[0], c.x), zeros(needs[1], c.weight), zeros(needs[2], c.bias)};
}

void check_needs(const char* op, const linear_call& c, std::array<bool, 3> needs) {
  TORCH_CHECK_VALUE(!needs[2] || c.bias, op,
                    ": bias must be given when its gradient is needed, got None");
}

four_tensors compute_forward(const linear_call& c, std::array<bool, 3> needs) {
  const loss_options o = checked(c);
  const int64_t vocabulary = c.weight.size(0);
  const Tensor none = at::empty({0}, c.x.options());
  const bool empty = is_empty(c);
  decision d;
  if (!empty || explaining() != nullptr) {
    d = decide(kKernel, c.x.device(), why_no_cross_entropy_kernel(c.x.scalar_type(), vocabulary));
    if (d.explained) return {none, none, none, none};
  }
  const Tensor targets = c.targets.contiguous();
  const Tensor loss = at::empty(targets.sizes(), c.x.options().dtype(loss_dtype(c.x)));
  if (empty) {
    loss.zero_().masked_fill_(targets.ne(o.ignore_index), std::numeric_limits<double>::quiet_NaN());
    return std::tuple_cat(std::tuple(reduce_losses(d, o, loss, targets)), zero_gradients(c, needs));
  }
  const three_tensors gradients = go_through(d, c, o, loss, Tensor(), needs);
  return std::tuple_cat(std::tuple(reduce_losses(d, o, loss, targets)), gradients);
}

}  // namespace

Tensor linear_cross_entropy(const linear_call& c) {
  return std::get<0>(compute_forward(c, {false, false, false}));
}

four_tensors linear_cross_entropy_forward(const linear_call& c, std::array<bool, 3> needs) {
  check_needs("linear_cross_entropy_forward", c, needs);
  return compute_forward(c, needs);
}

three_tensors linear_cross_entropy_backward(const linear_call& c, const Tensor& dloss,
                                            const Tensor& loss, std::array<bool, 3> needs) {
  check_linear_backward(c, dloss, loss);
  check_needs("linear_cross_entropy_backward", c, needs);
  const loss_options o("linear_cross_entropy", c.ignore_index, "none", c.label_smoothing, c.z_loss);
  if (is_empty(c)) return zero_gradients(c, needs);
  const decision d = decide(kKernel, c.x.device(),
                            why_no_cross_entropy_kernel(c.x.scalar_type(), c.weight.size(0)));
  if (d.explained) return zero_gradients(c, {false, false, false});
  return go_through(d, c, o, Tensor(), dloss.contiguous(), needs);
}

void check_dense_linear(const linear_call& c) {
  check_dense(kForwardTable, {c.x, c.weight, c.targets, c.bias, c.label_smoothing, c.z_loss});
}
void check_dense_linear_backward(const linear_call& c, const Tensor& dloss, const Tensor& loss) {
  check_dense(kBackwardTable,
              {c.x, dloss, loss, c.weight, c.targets, c.bias, c.label_smoothing, c.z_loss});
}

void check_linear(const linear_call& c) { static_cast<void>(checked(c)); }
void check_linear_backward(const linear_call& c, const Tensor& dloss, const Tensor& loss) {
  check(kBackwardTable,
        {c.x, dloss, loss, c.weight, c.targets, c.bias, c.label_smoothing, c.z_loss});
}

}  // namespace thunderkittens
