// Forward and backward.
#include "model.h"

namespace gpt2 {

void model::train(int64_t number) {
  const int64_t rows = shape_.rows();
  const token_batch batch =
      token_batch::at(memory_->tokens + number * token_batch::ints(rows), rows);
  forward(batch);
  losses(batch, number, true);
  backward(batch, number > 0);
}

void model::evaluate() {
  const token_batch batch = token_batch::at(memory_->tokens, shape_.rows());
  forward(batch);
  losses(batch, 0, false);
}

// ---- Forward ------------------------------------------------------------------------------------

void model::forward(const token_batch& batch) {
  buffers& m = *memory_;
  const stream s = queue_.handle();
  const int64_t wpe = config_.padded_vocabulary() * config_.width;
  embed({shape_.batch, shape_.length, config_.width, type_}, batch, weight(0), weight(wpe),
        m.embedded, s);
  const auto weights_of = [&](int64_t norm) {
    return std::pair{weight(norm), weight(norm + config_.width)};
  };
  const auto [first_weight, first_bias] = weights_of(offsets_[0].norm1);
  tk::launch(plans_->first_norm,
             {.x = m.embedded,
              .weight = first_weight,
              .bias = first_bias,
              .y = m.layers[0].normal1,
              .mean = m.layers[0].mean1,
              .rstd = m.layers[0].rstd1},
             {}, s);
  const void* stream_before = m.embedded;
  for (size_t i = 0; i < m.layers.size(); ++i) {
    const layer_activations& l = m.layers[i];
    const layer_offsets& w = offsets_[i];
    multiply(qkv_, {.a = l.normal1, .b = weight(w.qkv), .c = l.qkv, .bias = weight(w.qkv_bias)});
    forward_attention(l);
    multiply(proj_,
             {.a = l.attended, .b = weight(w.proj), .c = m.branch, .bias = weight(w.proj_bias)});
    const auto [weight2, bias2] = weights_of(w.norm2);
    tk::launch(plans_->norm,
               {.x = m.branch,
                .residual = stream_before,
                .weight = weight2,
                .bias = bias2,
                .y = l.normal2,
                .sum = l.middle,
                .mean = l.mean2,
                .rstd = l.rstd2},
               {}, s);
    forward_mlp(l, w);
    const bool last = i + 1 == m.layers.size();
    const auto [weight1, bias1] = weights_of(last ? last_norm_ : offsets_[i + 1].norm1);
    tk::launch(plans_->norm,
               {.x = m.branch,
                .residual = l.middle,
                .weight = weight1,
                .bias = bias1,
                .y = last ? m.last_normal : m.layers[i + 1].normal1,
                .sum = l.output,
                .mean = last ? m.last_mean : m.layers[i + 1].mean1,
                .rstd = last ? m.last_rstd : m.layers[i + 1].rstd1},
               {}, s);
    stream_before = l.output;
  }
  multiply(logits_, {.a = m.last_normal, .b = weight(0), .c = m.logits});
}

void model::forward_attention(const layer_activations& l) {
  void* const k = at(l.qkv, config_.width);
  void* const v = at(l.qkv, 2 * config_.width);
  if (plans_->attention) {
    return tk::launch(*plans_->attention,
                      {.q = l.qkv, .k = k, .v = v, .o = l.attended, .lse = l.lse}, work(),
                      queue_.handle());
  }
  attention_forward(
      {shape_.batch, shape_.length, config_.heads, config_.head_dim(), 3 * config_.width},
      {.q = static_cast<float*>(l.qkv),
       .k = static_cast<float*>(k),
       .v = static_cast<float*>(v),
       .o = static_cast<float*>(l.attended),
       .lse = l.lse},
      queue_.handle());
}

void model::forward_mlp(const layer_activations& l, const layer_offsets& w) {
  operands fc{.a = l.normal2, .b = weight(w.fc), .c = l.hidden, .bias = weight(w.fc_bias)};
  if (fc_gelu_ != products::kNone) {
    fc.c = l.activated;
    fc.extra = l.hidden;
    multiply(fc_gelu_, fc);
  } else {
    multiply(fc_, fc);
    tk::launch(plans_->gelu, {.x = l.hidden, .y = l.activated}, {}, queue_.handle());
  }
  multiply(fc_proj_, {.a = l.activated,
                      .b = weight(w.fc_proj),
                      .c = memory_->branch,
                      .bias = weight(w.fc_proj_bias)});
}

// The gradient of the logits, if it is wanted, in their place.
void model::losses(const token_batch& batch, int64_t number, bool gradient) {
  buffers& m = *memory_;
  tk::launch(gradient ? plans_->loss_and_gradient : plans_->loss,
             {.logits = m.logits,
              .targets = batch.targets,
              .loss = m.losses,
              .gradient = gradient ? m.logits : nullptr,
              .dloss = gradient ? m.row_weight : nullptr},
             {}, queue_.handle());
  tk::launch(plans_->total, {.loss = m.losses, .total = m.results + number}, {}, queue_.handle());
}

// ---- Backward -----------------------------------------------------------------------------------

// dstream[0] has the gradient of the stream behind a block, dstream[1] that of its middle.
void model::backward(const token_batch& batch, bool accumulate) {
  buffers& m = *memory_;
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
  }
  const stream s = queue_.handle();
  embed_backward({shape_.batch, shape_.length, config_.width, type_}, batch, m.dstream[0],
                 gradient(0), gradient(config_.padded_vocabulary() * config_.width), accumulate, s);
  if (accumulate) {
    add(type_, parameters_.total - parameters_.norms, m.norm_gradients, gradient(parameters_.norms),
        s);
  }
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
  tk::launch(plans_->norm_backward,
             {.dy = m.dnormal,
              .x = x,
              .dsum = first ? nullptr : m.dstream[1],
              .weight = weight(offset),
              .mean = mean,
              .rstd = rstd,
              .dx = m.dstream[0],
              .dweight = dweight,
              .dbias = at(dweight, config_.width)},
             work(), queue_.handle());
}

void model::sum_columns(const column_sums_problem& p, const void* x, int64_t offset,
                        bool accumulate) {
  column_sums(p, x, gradient(offset), accumulate, memory_->workspace, queue_.handle());
}

void model::backward_mlp(const layer_activations& l, const layer_offsets& w, bool accumulate) {
  buffers& m = *memory_;
  const int64_t rows = shape_.rows();
  const void* const dy = m.dstream[0];
  if (shape_.recompute) {
    tk::launch(plans_->gelu, {.x = l.hidden, .y = l.activated}, {}, queue_.handle());
  }
  sum_columns({rows, config_.width, type_}, dy, w.fc_proj_bias, accumulate);
  multiply(w_fc_proj_,
           {.a = l.activated, .b = dy, .c = gradient(w.fc_proj), .accumulate = accumulate});
  operands to_hidden{.a = dy, .b = weight(w.fc_proj), .c = m.dhidden};
  if (d_fc_proj_gelu_ != products::kNone) {
    to_hidden.extra = l.hidden;
    multiply(d_fc_proj_gelu_, to_hidden);
  } else {
    multiply(d_fc_proj_, to_hidden);
    tk::launch(plans_->gelu_backward, {.dy = m.dhidden, .x = l.hidden, .dx = m.dhidden}, {},
               queue_.handle());
  }
  sum_columns({rows, 4 * config_.width, type_}, m.dhidden, w.fc_bias, accumulate);
  multiply(w_fc_, {.a = l.normal2, .b = m.dhidden, .c = gradient(w.fc), .accumulate = accumulate});
  multiply(d_fc_, {.a = m.dhidden, .b = weight(w.fc), .c = m.dnormal});
}

void model::backward_attention(const layer_activations& l, const layer_offsets& w,
                               bool accumulate) {
  buffers& m = *memory_;
  const int64_t rows = shape_.rows(), width = config_.width;
  const void* const dy = m.dstream[0];
  sum_columns({rows, width, type_}, dy, w.proj_bias, accumulate);
  multiply(w_proj_, {.a = l.attended, .b = dy, .c = gradient(w.proj), .accumulate = accumulate});
  multiply(d_proj_, {.a = dy, .b = weight(w.proj), .c = m.dattended});
  void* const k = at(l.qkv, width);
  void* const v = at(l.qkv, 2 * width);
  if (plans_->attention) {
    tk::launch(*plans_->attention_backward,
               {.q = l.qkv,
                .k = k,
                .v = v,
                .o = l.attended,
                .d_o = m.dattended,
                .lse = l.lse,
                .dq = m.dq,
                .dk = m.dk,
                .dv = m.dv},
               work(), queue_.handle());
  } else {
    const auto f = [](void* p) { return static_cast<float*>(p); };
    attention_backward({shape_.batch, shape_.length, config_.heads, config_.head_dim(), 3 * width},
                       {f(l.qkv), f(k), f(v), f(l.attended), l.lse, f(m.dattended), m.delta,
                        f(m.dq), f(m.dk), f(m.dv)},
                       queue_.handle());
  }
  // The op's gradients are three matrices, the weight is one: a product for each third of it.
  int64_t part = 0;
  for (const void* const d : {m.dq, m.dk, m.dv}) {
    sum_columns({rows, width, type_}, d, w.qkv_bias + part, accumulate);
    multiply(w_qkv_part_,
             {.a = l.normal1, .b = d, .c = gradient(w.qkv + part), .accumulate = accumulate});
    multiply(d_qkv_part_,
             {.a = d, .b = weight(w.qkv + part), .c = m.dnormal, .accumulate = part > 0});
    part += width;
  }
}

}  // namespace gpt2
