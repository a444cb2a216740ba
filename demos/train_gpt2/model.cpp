// What is chosen once: the ops' plans, the products, the memory.
#include "model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rotary_tables.h"

namespace gpt2 {
namespace {

layer_offsets gpt2_offsets(const parameters& p, int64_t layer) {
  const auto of = [&](const char* name) {
    return p.find("h." + std::to_string(layer) + "." + name).offset;
  };
  return {.norm1 = of("ln_1.weight"),
          .qkv = of("attn.c_attn.weight"),
          .qkv_bias = of("attn.c_attn.bias"),
          .proj = of("attn.c_proj.weight"),
          .proj_bias = of("attn.c_proj.bias"),
          .norm2 = of("ln_2.weight"),
          .fc = of("mlp.c_fc.weight"),
          .fc_bias = of("mlp.c_fc.bias"),
          .fc_proj = of("mlp.c_proj.weight"),
          .fc_proj_bias = of("mlp.c_proj.bias")};
}

layer_offsets llama_offsets(const parameters& p, int64_t layer) {
  const auto of = [&](const char* name) {
    return p.find("model.layers." + std::to_string(layer) + "." + name).offset;
  };
  return {.norm1 = of("input_layernorm.weight"),
          .qkv = of("self_attn.q_proj.weight"),
          .proj = of("self_attn.o_proj.weight"),
          .norm2 = of("post_attention_layernorm.weight"),
          .fc = of("mlp.gate_proj.weight"),
          .fc_proj = of("mlp.down_proj.weight")};
}

std::vector<layer_offsets> offsets_of(const config& c, const parameters& p) {
  std::vector<layer_offsets> offsets;
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    offsets.push_back(c.is_llama ? llama_offsets(p, layer) : gpt2_offsets(p, layer));
  }
  return offsets;
}

tk::attention_forward_problem attention_problem(const config& c, const run_shape& s, dtype type) {
  const tk::attention_strides strides{s.length * c.qkv_width(), c.qkv_width(), c.head_dim()};
  return {.batch = s.batch,
          .rows = s.length,
          .keys = s.length,
          .heads = c.heads,
          .key_heads = c.heads_of_keys(),
          .head_dim = c.head_dim(),
          .value_dim = c.head_dim(),
          .q_strides = strides,
          .k_strides = strides,
          .v_strides = strides,
          .scale = 1 / std::sqrt(double(c.head_dim())),
          .right = 0,
          .type = type};
}

tk::cross_entropy_forward_problem loss_problem(const config& c, const run_shape& s, dtype type,
                                               bool gradient) {
  // A row's loss counts 1 / (rows · micro_steps) in the gradient, wherever it stands: no reduction.
  return {.rows = s.rows(),
          .width = c.vocabulary,
          .stride = c.padded_vocabulary(),
          .gradient = gradient,
          .gradient_stride = c.padded_vocabulary(),
          .reduction = tk::loss_reduction::none,
          .int64_targets = false,
          .type = type};
}

std::vector<int64_t> first_of_layer(const std::vector<layer_offsets>& offsets) {
  std::vector<int64_t> first;
  for (const layer_offsets& o : offsets) first.push_back(o.qkv);
  return first;
}

std::vector<int64_t> sizes_of(const std::vector<piece>& pieces) {
  std::vector<int64_t> sizes;
  for (const piece& p : pieces) sizes.push_back(p.size);
  return sizes;
}

bool has_masters(const update_options& o, dtype type) {
  return type != dtype::float32 && !o.stochastic_rounding;
}

tk::adamw_problem adamw_problem_of(const update_options& o, const std::vector<piece>& pieces,
                                   double decay, dtype type) {
  return {.sizes = sizes_of(pieces),
          .type = type,
          .moments = dtype::float32,
          .master_weights = has_masters(o, type),
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.epsilon,
          .weight_decay = decay,
          .max_norm = o.clip > 0 ? o.clip : std::numeric_limits<double>::infinity(),
          .skip_nonfinite = true,
          .stochastic_rounding = type != dtype::float32 && o.stochastic_rounding,
          .seed = o.seed};
}

}  // namespace

model::model(const config& c, const run_shape& shape, dtype type, const update_options& options,
             const device& d, queue& q, nccl* between)
    : config_(c),
      shape_(shape),
      type_(type),
      outliers_(options.outliers),
      queue_(q),
      parameters_(c),
      offsets_(offsets_of(c, parameters_)),
      shards_(parameters_, first_of_layer(offsets_), shape.ranks, shape.rank),
      last_norm_(parameters_.find(c.is_llama ? "model.norm.weight" : "ln_f.weight").offset),
      products_(d, type) {
  plan_ops(options, d);
  plan_attention(d);
  plan_products();
  const extents more{.workspace_bytes = workspace_bytes(),
                     .counters = most_counters(),
                     .outlier_window = outliers_.window,
                     .master = has_masters(options, type)};
  memory_.emplace(c, parameters_, shards_, shape, type, more, d, between);
  if (between != nullptr) {
    exchange_.emplace(d, *between, shards_, type, memory_->received, q);
  }
  fill_constants();
}

void model::fill_constants() {
  const auto rows = shape_.rows() * shape_.micro_steps * shape_.ranks;
  const float row_weight = 1.0f / static_cast<float>(rows);
  queue_.copy(memory_->row_weight, &row_weight, sizeof(row_weight));
  const rotary_tables tables(config_, config_.is_llama ? shape_.length : 0);
  const auto bytes = int64_t(tables.cos.size() * sizeof(float));
  queue_.copy(memory_->cos, tables.cos.data(), bytes);
  queue_.copy(memory_->sin, tables.sin.data(), bytes);
  queue_.synchronise();  // before all that goes
}

void model::plan_ops(const update_options& options, const device& d) {
  const int64_t rows = shape_.rows(), width = config_.width, hidden = config_.mlp_width();
  const bool llama = config_.is_llama;
  const auto add_norm = llama ? tk::norm_op::add_rms_norm : tk::norm_op::add_layer_norm;
  tk::norm_forward_problem norm{.op = add_norm,
                                .rows = rows,
                                .width = width,
                                .x_rows = {width},
                                .residual_stride = width,
                                .eps = config_.epsilon,
                                .type = type_};
  tk::norm_forward_problem first_norm = norm;
  first_norm.op = llama ? tk::norm_op::rms_norm : tk::norm_op::layer_norm;
  const tk::norm_backward_problem norm_backward{.op = add_norm,
                                                .rows = rows,
                                                .width = width,
                                                .dy_rows = {width},
                                                .x_rows = {width},
                                                .dsum_stride = width,
                                                .type = type_};
  plans_.emplace(plans{
      .first_norm = tk::plan(first_norm, d),
      .norm = tk::plan(norm, d),
      .norm_backward = tk::plan(norm_backward, d),
      .loss = tk::plan(loss_problem(config_, shape_, type_, false), d),
      .loss_and_gradient = tk::plan(loss_problem(config_, shape_, type_, true), d),
      .total = tk::plan(tk::cross_entropy_total_problem{rows, -100, false, false}, d),
      .grad_norm = tk::plan(tk::grad_norm_problem{sizes_of(shards_.pieces()), type_}, d),
  });
  plan_update(options, d);
  if (!llama) return plan_gelu(d);
  const auto silu = tk::activation::silu;
  const int64_t stride = 2 * hidden;  // of gate and up, which are one row
  plans_->swiglu =
      tk::plan(tk::gated_forward_problem{silu, rows, hidden, stride, stride, type_}, d);
  plans_->swiglu_backward =
      tk::plan(tk::gated_backward_problem{silu, rows, hidden, hidden, stride, stride, type_}, d);
}

void model::plan_gelu(const device& d) {
  const int64_t rows = shape_.rows(), width = config_.width, hidden = config_.mlp_width();
  const auto sums_of = [&](int64_t columns, int64_t stride) {
    return tk::plan(tk::column_sums_problem{rows, columns, stride, type_}, d);
  };
  plans_->sums = sums_of(width, width);
  plans_->query_sums = sums_of(width, config_.qkv_width());
  const auto gelu = tk::activation::gelu_tanh;
  plans_->gelu = tk::plan(tk::gelu_forward_problem{gelu, rows, hidden, hidden, type_}, d);
  if (type_ == dtype::bfloat16) {
    plans_->linear_gelu = tk::plan(
        tk::linear_gelu_problem{rows, width, hidden, width, hidden, false, gelu, type_}, d);
    plans_->linear_gelu_backward = tk::plan(
        tk::linear_gelu_backward_problem{rows, width, hidden, width, width, true, gelu, type_}, d);
    return;
  }
  plans_->hidden_sums = sums_of(hidden, hidden);
  plans_->gelu_backward =
      tk::plan(tk::gelu_backward_problem{gelu, rows, hidden, hidden, hidden, type_}, d);
}

void model::plan_update(const update_options& options, const device& d) {
  if (!shards_.matrices.empty()) {
    plans_->adamw_matrices =
        tk::plan(adamw_problem_of(options, shards_.matrices, options.weight_decay, type_), d);
  }
  if (!shards_.vectors.empty()) {
    plans_->adamw_vectors = tk::plan(adamw_problem_of(options, shards_.vectors, 0.0, type_), d);
  }
}

void model::plan_attention(const device& d) {
  const int64_t width = config_.width, length = shape_.length, dim = config_.head_dim();
  if (config_.is_llama) {
    const auto rows_of = [&](int64_t heads, int64_t row) {
      const tk::rotary_strides strides{length * row, row, dim};
      return tk::rotary_heads{heads, strides, strides};
    };
    const int64_t keys = config_.heads_of_keys(), qkv = config_.qkv_width();
    tk::rotary_problem problem{.batch = shape_.batch,
                               .tokens = length,
                               .width = dim,
                               .rotated = dim,
                               .q = rows_of(config_.heads, qkv),
                               .k = rows_of(keys, qkv),
                               .table_rows = length,
                               .cos_stride = dim / 2,
                               .sin_stride = dim / 2,
                               .in_place = true,
                               .type = type_,
                               .table_type = dtype::float32};
    plans_->rotary = tk::plan(problem, d);
    problem.conjugate = true;  // of the gradients, which lie as q and k do
    plans_->rotary_backward = tk::plan(problem, d);
  }
  if (type_ == dtype::float32) return;  // attention_fp32.cu
  const tk::attention_forward_problem attention = attention_problem(config_, shape_, type_);
  const tk::attention_strides contiguous{length * width, width, dim};
  plans_->attention = tk::plan(attention, d);
  plans_->attention_backward = tk::plan(
      tk::attention_backward_problem{attention, contiguous, contiguous, attention.q_strides,
                                     attention.k_strides, attention.v_strides},
      d);
}

int64_t model::workspace_bytes() const {
  int64_t most = std::max(products_.workspace_bytes(), plans_->norm_backward.workspace.bytes);
  for (const auto* const plan : {&plans_->sums, &plans_->query_sums, &plans_->hidden_sums}) {
    if (*plan) most = std::max(most, (*plan)->workspace.bytes);
  }
  if (plans_->linear_gelu) {
    most = std::max(most, plans_->linear_gelu_backward->workspace.bytes);
  }
  most = std::max(most, plans_->grad_norm.workspace.bytes);
  if (plans_->attention) most = std::max(most, plans_->attention_backward->workspace.bytes);
  return most;
}

int64_t model::most_counters() const {
  int64_t most = plans_->grad_norm.workspace.counters;
  for (const auto* const plan : {&plans_->adamw_matrices, &plans_->adamw_vectors}) {
    if (*plan) most = std::max(most, (*plan)->workspace.counters);
  }
  if (plans_->attention) most = std::max(most, plans_->attention_backward->workspace.counters);
  return most;
}

}  // namespace gpt2
