// One call of cross_entropy, and what the .cpp files of the family share. Torch, unlike
// cross_entropy.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "binding/backend.h"
#include "binding/describe.h"
#include "binding/layout.h"
#include "thunderkittens/kernels/cross_entropy.h"

namespace thunderkittens {

// The options of every op that computes a loss.
inline constexpr argument_list kLossOptions{
    integer("ignore_index").otherwise("-100"),
    word("reduction", "mean", "sum", "none").otherwise("\"mean\""),
    number("label_smoothing", 0.0).at_most(1.0).otherwise("0.0"),
    number("z_loss", 0.0).otherwise("0.0"),
};

// How a loss is computed, whatever the logits come from.
struct loss_options {
  int64_t ignore_index;
  loss_reduction reduce;
  double label_smoothing, z_loss;

  loss_options(int64_t ignore_index, std::string_view reduction, double label_smoothing,
               double z_loss);
};

// Raises IndexError unless all targets on the CPU are below `columns`, or ignored. `named`: what
// that number is.
void check_targets(std::string_view op, const loss_options& options, const Tensor& targets,
                   int64_t columns, const char* named);
// Where the kernels of `d` leave a target that is no column, under THUNDERKITTENS_STRICT=1; else
// null.
int64_t* word_for_target_outside(const decision& d);
// Raises IndexError if such a target has been left there, once for all that have. Not while the
// current stream is captured: the call after that does.
void raise_target_outside(const decision& d);

// Who serves a call on rows of `width` elements of the dtype of `t`. Raises what a kernel has left.
decision decide_loss(const kernel& wanted, const Tensor& t, int64_t width);

// The rows of one call, or a part of them. What is undefined is not wanted, or has no part in it.
struct loss_rows {
  Tensor logits;    // [..., V], as_rows must not copy it where `gradient` is itself
  Tensor targets;   // [...], contiguous
  Tensor loss;      // [...] of statistics_dtype, contiguous: written
  Tensor total;     // [] of statistics_dtype, where it is wanted for the losses: written, reduced
                    // as the options say, which are the gradient's, too
  Tensor gradient;  // [..., V], rows one distance apart, perhaps the logits: written
  Tensor counts;    // of count_targets: the gradient is divided by
  Tensor dloss;     // [...] of statistics_dtype, rows one distance apart: it is multiplied by
};

// On the backend of `d`, which may be ATen.
void compute_rows(const decision& d, const loss_options& options, const loss_rows& rows);
// How many targets are not ignored, as compute_rows takes it.
Tensor count_targets(const decision& d, const loss_options& options, const Tensor& targets);
// The losses [...] reduced as the options say; themselves, if not at all. `counts`: of
// count_targets, where they are known.
Tensor reduce_losses(const decision& d, const loss_options& options, const Tensor& loss,
                     const Tensor& targets, const Tensor& counts = {});

// What a backward returns for a gradient [..., V] that its forward has computed as if the loss's
// own gradient `dloss` were 1: its product with dloss, [...] or one number. In the memory of
// `gradient` where this backward is the graph's last. `loss`: what the forward returned; the
// product is differentiable no more, and depends on it.
Tensor scale_gradient(const Tensor& gradient, const Tensor& dloss, const Tensor& loss);

// ---- linear_cross_entropy -----------------------------------------------------------------------

// What a call was given, which outlives it.
struct linear_loss_call {
  const Tensor &x, &weight, &targets;
  const optional_tensor& bias;
  int64_t ignore_index;
  std::string_view reduction;
  double label_smoothing, z_loss;
  std::optional<int64_t> chunk_rows = {};  // empty: default_chunk_rows

  loss_options options() const { return {ignore_index, reduction, label_smoothing, z_loss}; }
};

// needs: of x, weight, bias. The loss, and the gradients as if that of the loss were 1; undefined
// where they are not wanted.
tensor_array<4> linear_cross_entropy_forward(const linear_loss_call& c, std::array<bool, 3> needs);
// The gradients of a call whose reduction is "none": dloss [...].
tensor_array<3> linear_cross_entropy_backward(const linear_loss_call& c, const Tensor& dloss,
                                              std::array<bool, 3> needs);

}  // namespace thunderkittens
