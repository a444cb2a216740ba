#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rotary_tables.h"

namespace gpt2 {

using kittens::host::bytes_of;

int draw(const std::vector<float>& logits, const sampling_options& o, random_numbers& random) {
  const auto count = static_cast<int64_t>(logits.size());
  const auto before = [&](int a, int b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  std::vector<int> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  const int best = *std::min_element(tokens.begin(), tokens.end(), before);
  if (o.temperature == 0) return best;
  if (o.top_k > 0 && o.top_k < count) {
    std::partial_sort(tokens.begin(), tokens.begin() + o.top_k, tokens.end(), before);
    tokens.resize(o.top_k);
  }
  std::vector<double> sums;
  double sum = 0;
  for (const int token : tokens) {
    sum += std::exp((double(logits[token]) - double(logits[best])) / o.temperature);
    sums.push_back(sum);
  }
  const double at = double(random.bits() >> 11) * 0x1p-53 * sum;
  const auto found = std::upper_bound(sums.begin(), sums.end(), at);
  return tokens[std::min<int64_t>(found - sums.begin(), int64_t(tokens.size()) - 1)];
}

sampler::sampler(model& m, int64_t positions, const device& d, queue& q)
    : model_(m),
      queue_(q),
      config_(m.sizes()),
      positions_(positions),
      products_(d, m.type()),
      memory_(d, place::device),
      caches_(config_.layers) {
  plan_ops(d);
  plan_attention(d);
  plan_products();
  memory_.allocate([&] { lay_out(); });
  fill_tables();
}

void sampler::plan_ops(const device& d) {
  const int64_t width = config_.width, hidden = config_.mlp_width();
  const dtype type = model_.type();
  const bool llama = config_.is_llama;
  tk::norm_forward_problem norm{
      .op = llama ? tk::norm_op::add_rms_norm : tk::norm_op::add_layer_norm,
      .rows = 1,
      .width = width,
      .x_rows = {width},
      .residual_stride = width,
      .eps = config_.epsilon,
      .type = type};
  tk::norm_forward_problem first_norm = norm;
  first_norm.op = llama ? tk::norm_op::rms_norm : tk::norm_op::layer_norm;
  plans_.emplace(plans{.first_norm = tk::plan(first_norm, d), .norm = tk::plan(norm, d)});
  if (llama) {
    const auto silu = tk::activation::silu;
    plans_->swiglu =
        tk::plan(tk::gated_forward_problem{silu, 1, hidden, 2 * hidden, 2 * hidden, type}, d);
  } else {
    const auto gelu = tk::activation::gelu_tanh;
    plans_->gelu = tk::plan(tk::gelu_forward_problem{gelu, 1, hidden, hidden, type}, d);
  }
}

void sampler::plan_attention(const device& d) {
  const int64_t width = config_.width, keys = config_.key_width(), qkv = config_.qkv_width();
  const int64_t head_dim = config_.head_dim();
  const int64_t key_heads = config_.heads_of_keys();
  const dtype type = model_.type();
  // A cache without pages: of one sequence.
  const tk::decode_strides in_cache{positions_ * keys, keys, head_dim};
  const tk::decode_strides in_qkv{qkv, qkv, head_dim};
  const tk::decode_cache cache{1, positions_, in_cache, in_cache};
  const tk::cache_append_problem append{.batch = 1,
                                        .tokens = 1,
                                        .key_heads = key_heads,
                                        .head_dim = head_dim,
                                        .k_strides = in_qkv,
                                        .v_strides = in_qkv,
                                        .cache = cache,
                                        .type = type};
  plans_->append = tk::plan(append, d);
  if (config_.is_llama) {
    const tk::rotary_strides row{qkv, qkv, head_dim};
    plans_->rotary = tk::plan(tk::rotary_problem{.batch = 1,
                                                 .tokens = 1,
                                                 .width = head_dim,
                                                 .rotated = head_dim,
                                                 .q = {config_.heads, row, row},
                                                 .k = {key_heads, row, row},
                                                 .table_rows = positions_,
                                                 .cos_stride = head_dim / 2,
                                                 .sin_stride = head_dim / 2,
                                                 .in_place = true,
                                                 .type = type,
                                                 .table_type = dtype::float32},
                              d);
  }
  const tk::attention_decode_problem attention{.batch = 1,
                                               .queries = 1,
                                               .heads = config_.heads,
                                               .key_heads = key_heads,
                                               .head_dim = head_dim,
                                               .q_strides = in_qkv,
                                               .o_strides = {width, width, head_dim},
                                               .cache = cache,
                                               .scale = 1 / std::sqrt(double(head_dim)),
                                               .type = type};
  if (why_unsupported(attention).empty()) plans_->attention = tk::plan(attention, d);
}

void sampler::plan_products() {
  const int64_t width = config_.width, hidden = config_.mlp_width();
  // `outer`: the weight is [out, in].
  const auto plan = [&](bool outer, int64_t in, int64_t out, epilogue after) {
    return products_.plan({.m = 1,
                           .n = out,
                           .k = in,
                           .transposed_b = outer,
                           .a_stride = in,
                           .b_stride = outer ? in : out,
                           .c_stride = out,
                           .after = after});
  };
  const bool llama = config_.is_llama;
  const epilogue bias = llama ? epilogue::none : epilogue::bias;
  qkv_ = plan(llama, width, config_.qkv_width(), bias);
  proj_ = plan(llama, width, width, bias);
  fc_ = plan(llama, width, config_.mlp_parts() * hidden, bias);
  fc_proj_ = plan(llama, hidden, width, bias);
  logits_product_ = plan(true, width, config_.padded_vocabulary(), epilogue::none);
}

void sampler::lay_out() {
  const int64_t width = config_.width, hidden = config_.mlp_width();
  const int64_t element = bytes_of(model_.type());
  const auto take = [&](int64_t elements) { return memory_.take_bytes(elements * element); };
  for (layer_cache& cache : caches_) {
    const int64_t size = positions_ * config_.key_width();
    cache = {take(size), take(size)};
  }
  for (void*& row : stream_) row = take(width);
  normal_ = take(width);
  qkv_row_ = take(config_.qkv_width());
  attended_ = take(width);
  branch_ = take(width);
  hidden_ = take(config_.mlp_parts() * hidden);
  activated_ = take(hidden);
  logits_row_ = take(config_.padded_vocabulary());
  const auto attention = plans_->attention ? plans_->attention->workspace : tk::workspace_size{};
  workspace_ = memory_.take_bytes(std::max(products_.workspace_bytes(), attention.bytes));
  counters_ = memory_.take<int>(attention.counters);
  const int64_t angles = config_.is_llama ? positions_ * config_.head_dim() / 2 : 0;
  cos_ = memory_.take<float>(angles);
  sin_ = memory_.take<float>(angles);
  step_ = memory_.take<int>(3);
}

void sampler::fill_tables() {
  const rotary_tables tables(config_, config_.is_llama ? positions_ : 0);
  const auto bytes = int64_t(tables.cos.size() * sizeof(float));
  queue_.copy(cos_, tables.cos.data(), bytes);
  queue_.copy(sin_, tables.sin.data(), bytes);
  queue_.synchronise();  // before they go
}

void sampler::multiply(int product, const void* a, int64_t weight, void* c, int64_t bias) {
  products_.run(product, {.a = a, .b = model_.weight(weight), .c = c, .bias = model_.weight(bias)},
                workspace_, queue_.handle());
}

// Of the row of qkv, to `attended_`.
void sampler::attend(const layer_cache& cache) {
  const stream s = queue_.handle();
  const int* const keys = step_ + 1;
  void* const k = model_.at(qkv_row_, config_.width);
  if (plans_->rotary) {
    tk::launch(*plans_->rotary,
               {.q = qkv_row_,
                .q_out = qkv_row_,
                .k = k,
                .k_out = k,
                .cos = cos_,
                .sin = sin_,
                .offsets = step_ + 2},
               {}, s);
  }
  tk::launch(*plans_->append,
             {.k = k,
              .v = model_.at(k, config_.key_width()),
              .k_cache = cache.k,
              .v_cache = cache.v,
              .seqlens = keys,
              .table = nullptr},
             {}, s);
  if (plans_->attention) {
    return tk::launch(*plans_->attention,
                      {.q = qkv_row_,
                       .k = cache.k,
                       .v = cache.v,
                       .o = attended_,
                       .seqlens = keys,
                       .table = nullptr},
                      {.memory = workspace_, .counters = counters_}, s);
  }
  attention_cached({config_.heads, config_.heads_of_keys(), config_.head_dim(), model_.type()},
                   {qkv_row_, cache.k, cache.v, attended_, keys}, s);
}

void sampler::activate() {
  const stream s = queue_.handle();
  if (plans_->gelu) return tk::launch(*plans_->gelu, {.x = hidden_, .y = activated_}, {}, s);
  void* const up = model_.at(hidden_, config_.mlp_width());
  tk::launch(*plans_->swiglu, {.gate = hidden_, .up = up, .y = activated_}, {}, s);
}

std::vector<float> sampler::logits(int token, int64_t position) {
  const stream s = queue_.handle();
  const int64_t width = config_.width;
  const int step[] = {token, static_cast<int>(position) + 1, static_cast<int>(position)};
  queue_.copy(step_, step, sizeof(step));
  const int64_t wpe = config_.padded_vocabulary() * width + position * width;
  embed({1, 1, width, model_.type()}, {.inputs = step_}, model_.weight(0),
        config_.is_llama ? nullptr : model_.weight(wpe), stream_[0], s);
  const auto norm = [&](bool first, int64_t at) {
    tk::launch(first ? plans_->first_norm : plans_->norm,
               {.x = first ? stream_[0] : branch_,
                .residual = first ? nullptr : stream_[0],
                .weight = model_.weight(at),
                .bias = model_.weight(model_.bias_of_norm(at)),
                .y = normal_,
                .sum = first ? nullptr : stream_[1]},
               {}, s);
    if (!first) std::swap(stream_[0], stream_[1]);
  };
  for (size_t i = 0; i < caches_.size(); ++i) {
    const layer_offsets& w = model_.offsets(i);
    norm(i == 0, w.norm1);
    multiply(qkv_, normal_, w.qkv, qkv_row_, w.qkv_bias);
    attend(caches_[i]);
    multiply(proj_, attended_, w.proj, branch_, w.proj_bias);
    norm(false, w.norm2);
    multiply(fc_, normal_, w.fc, hidden_, w.fc_bias);
    activate();
    multiply(fc_proj_, activated_, w.fc_proj, branch_, w.fc_proj_bias);
  }
  norm(false, model_.last_norm());
  products_.run(logits_product_, {.a = normal_, .b = model_.weight(0), .c = logits_row_},
                workspace_, s);
  return to_host(queue_, model_.type(), logits_row_, config_.vocabulary);
}

std::vector<int> sampler::sample(const sampling_options& o, random_numbers random) {
  std::vector<int> all = o.prompt;
  const size_t whole = o.prompt.size() + o.tokens;
  for (size_t position = 0; position + 1 < whole; ++position) {
    const std::vector<float> next = logits(all[position], static_cast<int64_t>(position));
    if (position + 1 == all.size()) all.push_back(draw(next, o, random));
  }
  return {all.begin() + static_cast<int64_t>(o.prompt.size()), all.end()};
}

}  // namespace gpt2
