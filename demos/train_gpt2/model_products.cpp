// How a model's products are computed.
#include "model.h"

namespace gpt2 {

// The rows of a product are those of the micro-batch, or of a weight, whose gradient sums over
// them. `outer`: the weight is [out, in].
void model::plan_products() {
  const int64_t rows = shape_.rows(), width = config_.width, hidden = config_.mlp_width();
  const int64_t qkv = config_.qkv_width();
  const int64_t vocabulary = config_.padded_vocabulary(), all_hidden = config_.mlp_parts() * hidden;
  // y [rows, out] = x [rows, in] · w
  const auto plan_forward = [&](const char* name, bool outer, int64_t in, int64_t out,
                                epilogue after) {
    return products_.plan({.name = name,
                           .m = rows,
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
  const auto plan_input = [&](const char* name, bool outer, int64_t in, int64_t out, int64_t all,
                              epilogue after) {
    return products_.plan({.name = name,
                           .m = rows,
                           .n = in,
                           .k = out,
                           .transposed_b = !outer,
                           .a_stride = out,
                           .b_stride = outer ? in : all,
                           .c_stride = in,
                           .after = after});
  };
  const auto plan_weight = [&](const char* name, bool outer, int64_t in, int64_t out, int64_t all) {
    return products_.plan({.name = name,
                           .m = outer ? out : in,
                           .n = outer ? in : out,
                           .k = rows,
                           .transposed_a = true,
                           .a_stride = outer ? out : in,
                           .b_stride = outer ? in : out,
                           .c_stride = outer ? in : all});
  };
  const bool llama = config_.is_llama;
  const epilogue bias = llama ? epilogue::none : epilogue::bias;
  qkv_ = plan_forward("forward qkv", llama, width, qkv, bias);
  proj_ = plan_forward("forward proj", llama, width, width, bias);
  fc_ = plan_forward("forward fc", llama, width, all_hidden, bias);
  fc_proj_ = plan_forward("forward fc_proj", llama, hidden, width, bias);
  d_qkv_ = plan_input("input gradient qkv", llama, width, qkv, qkv, epilogue::none);
  d_proj_ = plan_input("input gradient proj", llama, width, width, width, epilogue::none);
  d_fc_ = plan_input("input gradient fc", llama, width, hidden, all_hidden, epilogue::none);
  d_fc_proj_ = plan_input("input gradient fc_proj", llama, hidden, width, width, epilogue::none);
  w_qkv_ = plan_weight("weight gradient qkv", llama, width, qkv, qkv);
  w_proj_ = plan_weight("weight gradient proj", llama, width, width, width);
  w_fc_ = plan_weight("weight gradient fc", llama, width, hidden, all_hidden);
  w_fc_proj_ = plan_weight("weight gradient fc_proj", llama, hidden, width, width);
  // The classifier's weight is wte, [vocabulary, width]: logits = x · wteᵀ.
  logits_ = plan_forward("logits", true, width, vocabulary, epilogue::none);
  d_logits_ =
      plan_input("input gradient logits", true, width, vocabulary, vocabulary, epilogue::none);
  w_logits_ = plan_weight("weight gradient logits", true, width, vocabulary, vocabulary);
}

void model::multiply(int number, const operands& o) {
  if (profile_ != nullptr) {
    const product& p = products_.planned(number);
    const auto m = double(p.m), n = double(p.n), k = double(p.k);
    const double out = m * n * (o.accumulate ? 2 : 1);
    profile_->begin({p.name, 2 * m * n * k, (m * k + n * k + out) * double(element())});
  }
  if (chooses_) return products_.choose(number, o, memory_->workspace, queue_.handle());
  products_.run(number, o, memory_->workspace, queue_.handle());
}

void model::choose_products() {
  if (!products_.have_choice()) return;
  chooses_ = true;
  train(0);
  chooses_ = false;
  if (exchange_) exchange_->await_sums();
  queue_.synchronise();
}

}  // namespace gpt2
