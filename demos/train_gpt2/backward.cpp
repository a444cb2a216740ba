// Gradients.
#include "model.h"

namespace gpt2 {

// dstream[0] has the gradient of the stream behind a block, dstream[1] that of its middle.
void model::backward(const token_batch& batch, bool accumulate, bool last) {
  buffers& m = *memory_;
  const auto is_done = [&](size_t bucket) {
    if (exchange_ && last) exchange_->sum_gradients(bucket, m.gradients);
  };
  const auto finish_layer = [&](size_t i) {
    multiply_weight(w_qkv_, m.layers[i].normal1, m.dqkv, offsets_[i].qkv, accumulate);
    is_done(shards_.of_layer(i));
  };
  multiply(d_logits_, {.a = m.logits, .b = weight(0), .c = m.dnormal});
  multiply(w_logits_,
           {.a = m.logits, .b = m.last_normal, .c = gradient(0), .accumulate = accumulate});
  backward_norm(m.layers.back().output, m.last_mean, m.last_rstd, last_norm_, true, accumulate);
  for (size_t i = m.layers.size(); i-- > 0;) {
    const layer_activations& l = m.layers[i];
    backward_mlp(l, offsets_[i], accumulate);
    backward_norm(l.middle, l.mean2, l.rstd2, offsets_[i].norm2, false, accumulate);
    backward_attention(l, offsets_[i], accumulate);
    backward_norm(i > 0 ? m.layers[i - 1].output : m.embedded, l.mean1, l.rstd1, offsets_[i].norm1,
                  false, accumulate);
    if (i > 0) finish_layer(i);
  }
  const stream s = queue_.handle();
  void* const dwpe =
      config_.is_llama ? nullptr : gradient(config_.padded_vocabulary() * config_.width);
  begin("embedding's gradient", config_.is_llama ? 1 : 2);
  embed_backward({shape_.batch, shape_.length, config_.width, type_}, batch, m.dstream[0],
                 gradient(0), dwpe, accumulate, s);
  if (accumulate) {
    begin("addition of gradients", 0);
    add(type_, parameters_.total - parameters_.norms, m.norm_gradients, gradient(parameters_.norms),
        s);
  }
  is_done(shards_.of_embedding());
  is_done(shards_.of_vectors());
  // What is left, beside the exchange of the embedding's, which is the largest bucket.
  finish_layer(0);
}

// dnormal, and what arrives at the stream itself but behind the last block (`first`), to the
// gradient of the stream in front of the norm, in dstream[0].
void model::backward_norm(const void* x, const float* mean, const float* rstd, int64_t offset,
                          bool first, bool accumulate) {
  buffers& m = *memory_;
  if (!first) std::swap(m.dstream[0], m.dstream[1]);
  // The op writes its gradients; those of later micro-batches are added behind all of them.
  void* const dweight =
      accumulate ? at(m.norm_gradients, offset - parameters_.norms) : gradient(offset);
  begin("norm's gradient", first ? 3 : 4);
  tk::launch(plans_->norm_backward,
             {.dy = m.dnormal,
              .x = x,
              .dsum = first ? nullptr : m.dstream[1],
              .weight = weight(offset),
              .mean = mean,
              .rstd = rstd,
              .dx = m.dstream[0],
              .dweight = dweight,
              .dbias = config_.is_llama ? nullptr : at(dweight, config_.width)},
             work(), queue_.handle());
}

void model::sum_columns(const tk::column_sums_plan& plan, const void* x, int64_t offset,
                        bool accumulate) {
  begin("bias' gradient", share_of(plan.problem.width));
  tk::launch(plan, {.x = x, .sums = gradient(offset), .accumulate = accumulate}, work(),
             queue_.handle());
}

// From the gradient of what is activated, which is in dhidden, to that of the hidden layer, and its
// bias'.
void model::backward_activation(const layer_activations& l, const layer_offsets& w,
                                bool accumulate) {
  void* const d = memory_->dhidden;
  if (!config_.is_llama) {
    const int64_t hidden = config_.mlp_width();
    begin("gelu's gradient", 3 * share_of(hidden));
    tk::launch(*plans_->gelu_backward, {.dy = d, .x = l.hidden, .dx = d}, {}, queue_.handle());
    return sum_columns(*plans_->hidden_sums, d, w.fc_bias, accumulate);
  }
  begin("swiglu's gradient", 5 * share_of(config_.mlp_width()));
  const int64_t hidden = config_.mlp_width(), size = shape_.rows() * hidden;
  tk::launch(*plans_->swiglu_backward,
             {.dy = at(d, 2 * size),
              .gate = l.hidden,
              .up = at(l.hidden, hidden),
              .dgate = d,
              .dup = at(d, size)},
             {}, queue_.handle());
}

void model::backward_mlp(const layer_activations& l, const layer_offsets& w, bool accumulate) {
  buffers& m = *memory_;
  const int64_t width = config_.width, hidden = config_.mlp_width();
  const void* const dy = m.dstream[0];
  if (shape_.recompute) activate(l);
  if (plans_->sums) sum_columns(*plans_->sums, dy, w.fc_proj_bias, accumulate);
  multiply_weight(w_fc_proj_, l.activated, dy, w.fc_proj, accumulate);
  if (plans_->linear_gelu_backward) {
    begin_gelu_product("gelu's and fc's bias' gradient");
    tk::launch(*plans_->linear_gelu_backward,
               {.dy = dy,
                .weight = weight(w.fc_proj),
                .hidden = l.hidden,
                .dhidden = m.dhidden,
                .dbias = gradient(w.fc_bias),
                .accumulate = accumulate},
               work(), queue_.handle());
  } else {
    void* const d_activated =
        config_.is_llama ? at(m.dhidden, 2 * shape_.rows() * hidden) : m.dhidden;
    multiply(d_fc_proj_, {.a = dy, .b = weight(w.fc_proj), .c = d_activated});
    backward_activation(l, w, accumulate);
  }
  for (int64_t part = 0; part < config_.mlp_parts(); ++part) {
    const void* const d = at(m.dhidden, part * shape_.rows() * hidden);
    const int64_t fc = part_of(w.fc, part * hidden, width);
    multiply_weight(w_fc_, l.normal2, d, fc, accumulate);
    multiply(d_fc_, {.a = d, .b = weight(fc), .c = m.dnormal, .accumulate = part > 0});
  }
}

void model::backward_attention(const layer_activations& l, const layer_offsets& w,
                               bool accumulate) {
  buffers& m = *memory_;
  const int64_t width = config_.width, keys = config_.key_width();
  const void* const dy = m.dstream[0];
  if (plans_->sums) sum_columns(*plans_->sums, dy, w.proj_bias, accumulate);
  multiply_weight(w_proj_, l.attended, dy, w.proj, accumulate);
  multiply(d_proj_, {.a = dy, .b = weight(w.proj), .c = m.dattended});
  void* const k = at(l.qkv, width);
  void* const v = at(k, keys);
  // As q, k and v do, their gradients lie in one row: one product for all, of the input and of the
  // weight.
  void* const dq = m.dqkv;
  void* const dk = at(dq, width);
  void* const dv = at(dk, keys);
  // q, o, their gradients, and the same of k and v; five products for the forward's two.
  begin("attention's gradient", 4 * (1 + share_of(keys)), 2.5 * attention_flops());
  if (plans_->attention) {
    tk::launch(*plans_->attention_backward,
               {.q = l.qkv,
                .k = k,
                .v = v,
                .o = l.attended,
                .d_o = m.dattended,
                .lse = l.lse,
                .dq = dq,
                .dk = dk,
                .dv = dv},
               work(), queue_.handle());
  } else {
    const auto f = [](void* p) { return static_cast<float*>(p); };
    attention_backward(
        {shape_.batch, shape_.length, config_.heads, config_.heads_of_keys(), config_.head_dim(),
         config_.qkv_width()},
        {f(l.qkv), f(k), f(v), f(l.attended), l.lse, f(m.dattended), m.delta, f(dq), f(dk), f(dv)},
        queue_.handle());
  }
  if (plans_->rotary_backward) {
    begin("rotary's gradient", 2 * (1 + share_of(keys)));
    tk::launch(*plans_->rotary_backward,
               {.q = dq, .q_out = dq, .k = dk, .k_out = dk, .cos = m.cos, .sin = m.sin}, {},
               queue_.handle());
  }
  if (plans_->sums) {
    sum_columns(*plans_->query_sums, dq, w.qkv_bias, accumulate);
    void* const dk_bias = gradient(w.qkv_bias + width);
    key_value_bias_backward(type_, width, weight(w.proj), gradient(w.proj_bias), dk_bias,
                            at(dk_bias, width), queue_.handle());
  }
  multiply(d_qkv_, {.a = m.dqkv, .b = weight(w.qkv), .c = m.dnormal});
}

}  // namespace gpt2
