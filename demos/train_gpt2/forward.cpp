// What a model computes forward, and a step's parts.
#include "model.h"

namespace gpt2 {

void model::train(int64_t number) {
  const int64_t rows = shape_.rows();
  const token_batch batch =
      token_batch::at(memory_->tokens + number * token_batch::ints(rows), rows);
  if (exchange_ && number == 0) exchange_->gather_weights(memory_->weights);
  forward(batch);
  losses(batch, number, true);
  backward(batch, number > 0, number + 1 == shape_.micro_steps);
}

void model::evaluate() {
  const token_batch batch = token_batch::at(memory_->tokens, shape_.rows());
  forward(batch);
  losses(batch, 0, false);
}

void model::forward(const token_batch& batch) {
  buffers& m = *memory_;
  const stream s = queue_.handle();
  const int64_t wpe = config_.padded_vocabulary() * config_.width;
  const auto await_weights = [&](size_t bucket) {
    if (exchange_) exchange_->await_weights(bucket);
  };
  await_weights(shards_.of_vectors());
  await_weights(shards_.of_embedding());
  begin("embedding", 2);
  embed({shape_.batch, shape_.length, config_.width, type_}, batch, weight(0),
        config_.is_llama ? nullptr : weight(wpe), m.embedded, s);
  const auto weights_of = [&](int64_t norm) {
    return std::pair{weight(norm), weight(bias_of_norm(norm))};
  };
  const auto [first_weight, first_bias] = weights_of(offsets_[0].norm1);
  begin("first norm", 2);
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
    await_weights(shards_.of_layer(i));
    multiply(qkv_, {.a = l.normal1, .b = weight(w.qkv), .c = l.qkv, .bias = weight(w.qkv_bias)});
    forward_attention(l);
    multiply(proj_,
             {.a = l.attended, .b = weight(w.proj), .c = m.branch, .bias = weight(w.proj_bias)});
    const auto [weight2, bias2] = weights_of(w.norm2);
    begin("addition and norm", 4);
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
    begin("addition and norm", 4);
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
  void* const v = at(k, config_.key_width());
  if (plans_->rotary) {
    begin("rotary", 2 * (1 + share_of(config_.key_width())));
    tk::launch(
        *plans_->rotary,
        {.q = l.qkv, .q_out = l.qkv, .k = k, .k_out = k, .cos = memory_->cos, .sin = memory_->sin},
        {}, queue_.handle());
  }
  begin("attention", 2 * (1 + share_of(config_.key_width())), attention_flops());
  if (plans_->attention) {
    return tk::launch(*plans_->attention,
                      {.q = l.qkv, .k = k, .v = v, .o = l.attended, .lse = l.lse}, work(),
                      queue_.handle());
  }
  attention_forward({shape_.batch, shape_.length, config_.heads, config_.heads_of_keys(),
                     config_.head_dim(), config_.qkv_width()},
                    {.q = static_cast<float*>(l.qkv),
                     .k = static_cast<float*>(k),
                     .v = static_cast<float*>(v),
                     .o = static_cast<float*>(l.attended),
                     .lse = l.lse},
                    queue_.handle());
}

void model::forward_mlp(const layer_activations& l, const layer_offsets& w) {
  if (plans_->linear_gelu) {
    begin_gelu_product("forward fc and gelu");
    tk::launch(*plans_->linear_gelu,
               {.x = l.normal2,
                .weight = weight(w.fc),
                .bias = weight(w.fc_bias),
                .hidden = l.hidden,
                .activated = l.activated},
               {}, queue_.handle());
  } else {
    multiply(fc_, {.a = l.normal2, .b = weight(w.fc), .c = l.hidden, .bias = weight(w.fc_bias)});
    activate(l);
  }
  multiply(fc_proj_, {.a = l.activated,
                      .b = weight(w.fc_proj),
                      .c = memory_->branch,
                      .bias = weight(w.fc_proj_bias)});
}

void model::activate(const layer_activations& l) {
  begin(plans_->gelu ? "gelu" : "swiglu",
        double(config_.mlp_parts() + 1) * share_of(config_.mlp_width()));
  if (plans_->gelu) {
    return tk::launch(*plans_->gelu, {.x = l.hidden, .y = l.activated}, {}, queue_.handle());
  }
  tk::launch(*plans_->swiglu,
             {.gate = l.hidden, .up = at(l.hidden, config_.mlp_width()), .y = l.activated}, {},
             queue_.handle());
}

// The gradient of the logits, if it is wanted, in their place.
void model::losses(const token_batch& batch, int64_t number, bool gradient) {
  buffers& m = *memory_;
  begin("loss and its gradient", (gradient ? 2 : 1) * share_of(config_.padded_vocabulary()));
  tk::launch(gradient ? plans_->loss_and_gradient : plans_->loss,
             {.logits = m.logits,
              .targets = batch.targets,
              .loss = m.losses,
              .gradient = gradient ? m.logits : nullptr,
              .dloss = gradient ? m.row_weight : nullptr},
             {}, queue_.handle());
  tk::launch(plans_->total, {.loss = m.losses, .total = numbers() + number}, {}, queue_.handle());
}

}  // namespace gpt2
