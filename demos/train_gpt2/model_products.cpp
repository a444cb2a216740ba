// How a model's products are computed.
#include "model.h"

namespace gpt2 {

// The rows of a product are those of the micro-batch, or of a weight, whose gradient sums over
// them. `outer`: the weight is [out, in].
void model::plan_products() {
  const int64_t rows = shape_.rows(), width = config_.width, hidden = config_.mlp_width();
  const int64_t keys = config_.key_width(), qkv = config_.qkv_width();
  const int64_t vocabulary = config_.padded_vocabulary(), all_hidden = config_.mlp_parts() * hidden;
  // y [rows, out] = x [rows, in] · w
  const auto plan_forward = [&](bool outer, int64_t in, int64_t out, epilogue after) {
    return products_.plan({.m = rows,
                           .n = out,
                           .k = in,
                           .transposed_b = outer,
                           .a_stride = in,
                           .b_stride = outer ? in : out,
                           .c_stride = out,
                           .after = after});
  };
  // dx [rows, in] = dy [rows, out] · wᵀ, and dw = xᵀ · dy or dyᵀ · x; of `out` outputs of a w that
  // has `all`.
  const auto plan_input = [&](bool outer, int64_t in, int64_t out, int64_t all, epilogue after) {
    return products_.plan({.m = rows,
                           .n = in,
                           .k = out,
                           .transposed_b = !outer,
                           .a_stride = out,
                           .b_stride = outer ? in : all,
                           .c_stride = in,
                           .after = after});
  };
  const auto plan_weight = [&](bool outer, int64_t in, int64_t out, int64_t all) {
    return products_.plan({.m = outer ? out : in,
                           .n = outer ? in : out,
                           .k = rows,
                           .transposed_a = true,
                           .a_stride = outer ? out : in,
                           .b_stride = outer ? in : out,
                           .c_stride = outer ? in : all});
  };
  const bool llama = config_.is_llama, gelu = !llama;
  const epilogue bias = llama ? epilogue::none : epilogue::bias;
  qkv_ = plan_forward(llama, width, qkv, bias);
  proj_ = plan_forward(llama, width, width, bias);
  fc_ = plan_forward(llama, width, all_hidden, bias);
  // Where gelu is computed again by the op, the op computes it the first time, too: the same bits.
  fc_gelu_ = gelu && !shape_.recompute ? plan_forward(llama, width, hidden, epilogue::bias_gelu)
                                       : products::kNone;
  fc_proj_ = plan_forward(llama, hidden, width, bias);
  d_q_ = plan_input(llama, width, width, qkv, epilogue::none);
  d_key_ = plan_input(llama, width, keys, qkv, epilogue::none);
  d_proj_ = plan_input(llama, width, width, width, epilogue::none);
  d_fc_ = plan_input(llama, width, hidden, all_hidden, epilogue::none);
  d_fc_proj_ = plan_input(llama, hidden, width, width, epilogue::none);
  d_fc_proj_gelu_ =
      gelu ? plan_input(llama, hidden, width, width, epilogue::dgelu) : products::kNone;
  w_q_ = plan_weight(llama, width, width, qkv);
  w_key_ = plan_weight(llama, width, keys, qkv);
  w_proj_ = plan_weight(llama, width, width, width);
  w_fc_ = plan_weight(llama, width, hidden, all_hidden);
  w_fc_proj_ = plan_weight(llama, hidden, width, width);
  // The classifier's weight is wte, [vocabulary, width]: logits = x · wteᵀ.
  logits_ = plan_forward(true, width, vocabulary, epilogue::none);
  d_logits_ = plan_input(true, width, vocabulary, vocabulary, epilogue::none);
  w_logits_ = plan_weight(true, width, vocabulary, vocabulary);
}

}  // namespace gpt2
