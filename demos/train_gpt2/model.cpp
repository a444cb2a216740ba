// What is chosen once: the ops' plans, the products, the memory; and the update.
#include "model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bfloat16.h"

namespace gpt2 {
namespace {

std::vector<layer_offsets> offsets_of(const config& c, const parameters& p) {
  std::vector<layer_offsets> offsets;
  for (int64_t l = 0; l < c.layers; ++l) {
    const auto of = [&](const char* name) {
      return p.find("h." + std::to_string(l) + "." + name).offset;
    };
    offsets.push_back({.norm1 = of("ln_1.weight"),
                       .qkv = of("attn.c_attn.weight"),
                       .qkv_bias = of("attn.c_attn.bias"),
                       .proj = of("attn.c_proj.weight"),
                       .proj_bias = of("attn.c_proj.bias"),
                       .norm2 = of("ln_2.weight"),
                       .fc = of("mlp.c_fc.weight"),
                       .fc_bias = of("mlp.c_fc.bias"),
                       .fc_proj = of("mlp.c_proj.weight"),
                       .fc_proj_bias = of("mlp.c_proj.bias")});
  }
  return offsets;
}

tk::attention_forward_problem attention_problem(const config& c, const run_shape& s, dtype type) {
  const tk::attention_strides strides{s.length * 3 * c.width, 3 * c.width, c.head_dim()};
  return {.batch = s.batch,
          .rows = s.length,
          .keys = s.length,
          .heads = c.heads,
          .key_heads = c.heads,
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

tk::adamw_problem adamw_problem_of(const update_options& o, int64_t elements, double decay,
                                   dtype type) {
  return {.sizes = {elements},
          .type = type,
          .moments = dtype::float32,
          .master_weights = type != dtype::float32 && !o.stochastic_rounding,
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
             const device& d, queue& q)
    : config_(c),
      shape_(shape),
      type_(type),
      outliers_(options.outliers),
      queue_(q),
      parameters_(c),
      offsets_(offsets_of(c, parameters_)),
      last_norm_(parameters_.find("ln_f.weight").offset),
      products_(d, type) {
  plan_ops(options, d);
  plan_products();
  const extents more{.workspace_bytes = workspace_bytes(),
                     .counters = most_counters(),
                     .outlier_window = outliers_.window,
                     .master = plans_->adamw_matrices.problem.master_weights};
  memory_.emplace(c, parameters_, shape, type, more, d);
  const float row_weight = 1.0f / static_cast<float>(shape.rows() * shape.micro_steps);
  queue_.upload(memory_->row_weight, &row_weight, sizeof(row_weight));
  queue_.synchronise();
}

void model::plan_ops(const update_options& options, const device& d) {
  const int64_t rows = shape_.rows(), width = config_.width, hidden = 4 * width;
  tk::norm_forward_problem norm{.op = tk::norm_op::add_layer_norm,
                                .rows = rows,
                                .width = width,
                                .x_rows = {width},
                                .residual_stride = width,
                                .eps = config_.epsilon,
                                .type = type_};
  tk::norm_forward_problem first_norm = norm;
  first_norm.op = tk::norm_op::layer_norm;
  const tk::norm_backward_problem norm_backward{.op = tk::norm_op::add_layer_norm,
                                                .rows = rows,
                                                .width = width,
                                                .dy_rows = {width},
                                                .x_rows = {width},
                                                .dsum_stride = width,
                                                .type = type_};
  const auto gelu = tk::activation::gelu_tanh;
  const int64_t matrices = parameters_.matrices, vectors = parameters_.total - matrices;
  plans_.emplace(plans{
      .first_norm = tk::plan(first_norm, d),
      .norm = tk::plan(norm, d),
      .norm_backward = tk::plan(norm_backward, d),
      .gelu = tk::plan(tk::gelu_forward_problem{gelu, rows, hidden, hidden, type_}, d),
      .gelu_backward =
          tk::plan(tk::gelu_backward_problem{gelu, rows, hidden, hidden, hidden, type_}, d),
      .loss = tk::plan(loss_problem(config_, shape_, type_, false), d),
      .loss_and_gradient = tk::plan(loss_problem(config_, shape_, type_, true), d),
      .total = tk::plan(tk::cross_entropy_total_problem{rows, -100, false, false}, d),
      .grad_norm = tk::plan(tk::grad_norm_problem{{parameters_.total}, type_}, d),
      .adamw_matrices =
          tk::plan(adamw_problem_of(options, matrices, options.weight_decay, type_), d),
      .adamw_vectors = tk::plan(adamw_problem_of(options, vectors, 0.0, type_), d),
  });
  if (type_ == dtype::float32) return;  // attention_fp32.cu
  const tk::attention_forward_problem attention = attention_problem(config_, shape_, type_);
  const tk::attention_strides contiguous{shape_.length * width, width, config_.head_dim()};
  plans_->attention = tk::plan(attention, d);
  plans_->attention_backward =
      tk::plan(tk::attention_backward_problem{attention, contiguous, contiguous}, d);
}

// The rows of a product are those of the micro-batch, or of a weight, whose gradient sums over
// them.
void model::plan_products() {
  const int64_t rows = shape_.rows(), width = config_.width, hidden = 4 * width;
  const int64_t vocabulary = config_.padded_vocabulary();
  // y [rows, out] = x [rows, in] · w [in, out]
  const auto plan_forward = [&](int64_t in, int64_t out, epilogue after) {
    return products_.plan({.m = rows,
                           .n = out,
                           .k = in,
                           .a_stride = in,
                           .b_stride = out,
                           .c_stride = out,
                           .after = after});
  };
  // dx [rows, in] = dy [rows, out] · wᵀ, and dw [in, out] = xᵀ · dy; of `out` columns of a w, whose
  // rows are `stride` apart.
  const auto plan_input = [&](int64_t in, int64_t out, int64_t stride, epilogue after) {
    return products_.plan({.m = rows,
                           .n = in,
                           .k = out,
                           .transposed_b = true,
                           .a_stride = out,
                           .b_stride = stride,
                           .c_stride = in,
                           .after = after});
  };
  const auto plan_weight = [&](int64_t in, int64_t out, int64_t stride) {
    return products_.plan({.m = in,
                           .n = out,
                           .k = rows,
                           .transposed_a = true,
                           .a_stride = in,
                           .b_stride = out,
                           .c_stride = stride});
  };
  qkv_ = plan_forward(width, 3 * width, epilogue::bias);
  proj_ = plan_forward(width, width, epilogue::bias);
  fc_ = plan_forward(width, hidden, epilogue::bias);
  // Where gelu is computed again by the op, the op computes it the first time, too: the same bits.
  fc_gelu_ = shape_.recompute ? products::kNone : plan_forward(width, hidden, epilogue::bias_gelu);
  fc_proj_ = plan_forward(hidden, width, epilogue::bias);
  d_qkv_part_ = plan_input(width, width, 3 * width, epilogue::none);
  d_proj_ = plan_input(width, width, width, epilogue::none);
  d_fc_ = plan_input(width, hidden, hidden, epilogue::none);
  d_fc_proj_ = plan_input(hidden, width, width, epilogue::none);
  d_fc_proj_gelu_ = plan_input(hidden, width, width, epilogue::dgelu);
  w_qkv_part_ = plan_weight(width, width, 3 * width);
  w_proj_ = plan_weight(width, width, width);
  w_fc_ = plan_weight(width, hidden, hidden);
  w_fc_proj_ = plan_weight(hidden, width, width);
  // The classifier's weight is wte, [vocabulary, width]: logits = x · wteᵀ.
  logits_ = plan_input(vocabulary, width, width, epilogue::none);
  d_logits_ = plan_forward(vocabulary, width, epilogue::none);
  w_logits_ = plan_weight(vocabulary, width, width);
}

int64_t model::workspace_bytes() const {
  const column_sums_problem widest{shape_.rows(), 4 * config_.width, type_};
  int64_t most = std::max(products_.workspace_bytes(), widest.workspace_bytes());
  most = std::max(most, plans_->norm_backward.workspace.bytes);
  most = std::max(most, plans_->grad_norm.workspace.bytes);
  if (plans_->attention) most = std::max(most, plans_->attention_backward->workspace.bytes);
  return most;
}

int64_t model::most_counters() const {
  int64_t most =
      std::max(plans_->grad_norm.workspace.counters, plans_->adamw_matrices.workspace.counters);
  if (plans_->attention) most = std::max(most, plans_->attention_backward->workspace.counters);
  return most;
}

void model::update() {
  buffers& m = *memory_;
  verdict* const said = verdict_in(m.results, shape_.micro_steps);
  const void* const all[] = {m.gradients};
  tk::launch(plans_->grad_norm, {.grads = all, .norm = &said->norm}, work(), queue_.handle());
  judge({shape_.micro_steps, shape_.micro_steps * shape_.rows(), outliers_},
        {.losses = m.results,
         .said = said,
         .update_norm = m.update_norm,
         .of_losses = m.loss_window,
         .of_norms = m.norm_window},
        queue_.handle());
  int64_t offset = 0;
  uint32_t number = 0;
  for (const tk::adamw_plan* const plan : {&plans_->adamw_matrices, &plans_->adamw_vectors}) {
    const tk::adamw_addresses addresses[] = {
        {.grad = gradient(offset),
         .param = weight(offset),
         .exp_avg = m.exp_avg + offset,
         .exp_avg_sq = m.exp_avg_sq + offset,
         .master = m.master != nullptr ? m.master + offset : nullptr,
         .step = m.updates + number,
         .number = number}};
    tk::launch(*plan, {.parameters = addresses, .lr = m.learning_rate, .grad_norm = m.update_norm},
               work(), queue_.handle());
    offset = parameters_.matrices;
    ++number;
  }
}

std::vector<float> model::exact_weights() {
  if (memory_->master != nullptr) {
    return to_host(queue_, dtype::float32, memory_->master, parameters_.total);
  }
  return to_host(queue_, type_, memory_->weights, parameters_.total);
}

void model::set_weights(const std::vector<float>& values) {
  const buffers& m = *memory_;
  const std::vector<bfloat16> rounded(values.begin(), values.end());
  if (m.master != nullptr) {
    queue_.upload(m.master, values.data(), parameters_.total * int64_t{sizeof(float)});
  }
  const void* const from =
      type_ == dtype::float32 ? static_cast<const void*>(values.data()) : rounded.data();
  queue_.upload(m.weights, from, parameters_.total * kittens::host::bytes_of(type_));
  queue_.synchronise();  // before the vectors go
}

}  // namespace gpt2
