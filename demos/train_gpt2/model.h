// GPT-2, or a model of Llama's shape, and a step of its training: forward, backward, AdamW.
//
//   x = wte[token] + wpe[position]
//   for each block:   x = x + attention(norm(x));   x = x + mlp(norm(x))
//   logits = norm(x) · wteᵀ,   loss = mean cross entropy of the next token
//
// GPT-2 has layer_norm, mlp(x) = gelu(x · w) · w', and a bias at every product. Llama's shape has
// rms_norm, mlp(x) = swiglu(x · w, x · w'') · w', no biases, instead of wpe q and k turned by their
// positions, and fewer heads of k and v.
//
// What is added to x, the addition and the norm behind it are one launch; so are a loss and its
// gradient, which replaces the logits. All functions are asynchronous, and allocate nothing but the
// constructor.
#pragma once

#include <optional>

#include "buffers.h"
#include "exchange.h"
#include "products.h"
#include "profile.h"
#include "thunderkittens/kernels/activation.h"
#include "thunderkittens/kernels/adamw.h"
#include "thunderkittens/kernels/attention.h"
#include "thunderkittens/kernels/cross_entropy.h"
#include "thunderkittens/kernels/mlp.h"
#include "thunderkittens/kernels/norm.h"
#include "thunderkittens/kernels/rotary.h"

namespace gpt2 {

namespace tk = thunderkittens;

struct update_options {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double clip = 1.0;  // the largest norm of the gradients; 0: any
  // bfloat16 weights have no float32 masters: an update rounds them up or down at random.
  bool stochastic_rounding = false;
  uint64_t seed = 0;  // of that
  outlier_options outliers;
};

// Where a layer's parameters lie, in elements; kNoParameter: it has none. Of Llama's shape qkv
// begins with q_proj, fc with gate_proj.
inline constexpr int64_t kNoParameter = -1;
struct layer_offsets {
  int64_t norm1, qkv, qkv_bias = kNoParameter, proj, proj_bias = kNoParameter;
  int64_t norm2, fc, fc_bias = kNoParameter, fc_proj, fc_proj_bias = kNoParameter;
};

class model {
 public:
  model(const config& c, const run_shape& shape, dtype type, const update_options& options,
        const device& d, queue& q, nccl* between = nullptr);  // null: there is one rank

  // Forward and backward of micro-batch `number`, whose tokens are there; gradients are added up
  // from number 0 on.
  void train(int64_t number);
  // AdamW on the summed gradients, clipped, at the learning rate that is in memory; or nothing, if
  // the step is an outlier or its gradients are not finite. It counts the updates.
  void update();
  // Takes the fastest ways of its products, by micro-batch 0, whose tokens are there; gradients are
  // spoilt. Waits.
  void choose_products();
  // Null, or what is told of each part of a step, train's and update's.
  void watch(profile* p) { profile_ = p; }
  // The sum of the losses of micro-batch 0.
  void evaluate();

  // Weights that others have updated come here ahead of the forward; this is for what else reads
  // them. All ranks have to ask.
  void complete_weights();

  const parameters& layout() const { return parameters_; }
  const shards& parts() const { return shards_; }
  buffers& memory() { return *memory_; }
  // The weights that updates change, the master weights where there are some. Waits for them, and
  // spoils gradients. All ranks have to ask, as below; rank 0 has them then, all others nothing.
  std::vector<float> exact_weights();
  // Sets them, and `weights` to what they are rounded to the nearest.
  void set_weights(const std::vector<float>& values);
  // The same of a moment, exp_avg or exp_avg_sq.
  std::vector<float> whole_state(const float* state);
  void set_state(float* state, const std::vector<float>& values);
  const config& sizes() const { return config_; }
  const run_shape& shape() const { return shape_; }
  const outlier_options& outliers() const { return outliers_; }
  dtype type() const { return type_; }
  const layer_offsets& offsets(size_t layer) const { return offsets_[layer]; }
  int64_t last_norm() const { return last_norm_; }
  // Whether gelu and its gradient are computed behind the products beside them.
  bool fuses_gelu() const { return plans_->linear_gelu.has_value(); }
  // Addresses: of a weight, and of an element of something of the model's type.
  void* weight(int64_t offset) const {
    return offset == kNoParameter ? nullptr : at(memory_->weights, offset);
  }
  // Of a norm's bias, behind its weight: null where it has none.
  int64_t bias_of_norm(int64_t norm) const {
    return config_.is_llama ? kNoParameter : norm + config_.width;
  }
  void* at(void* base, int64_t elements) const {
    return static_cast<std::byte*>(base) + elements * element();
  }

 private:
  void plan_ops(const update_options& options, const device& d);
  void plan_gelu(const device& d);
  void plan_update(const update_options& options, const device& d);
  void plan_attention(const device& d);
  void plan_products();
  void fill_constants();
  int64_t workspace_bytes() const;
  int64_t most_counters() const;

  void forward(const token_batch& batch);
  void forward_attention(const layer_activations& l);
  void forward_mlp(const layer_activations& l, const layer_offsets& w);
  void activate(const layer_activations& l);
  void losses(const token_batch& batch, int64_t number, bool gradient);
  void backward(const token_batch& batch, bool accumulate, bool last);
  // first: the number of the first piece, among all of the rank.
  void update_pieces(const std::vector<piece>& pieces, const tk::adamw_plan& plan, size_t first);
  void backward_mlp(const layer_activations& l, const layer_offsets& w, bool accumulate);
  void backward_attention(const layer_activations& l, const layer_offsets& w, bool accumulate);
  void backward_norm(const void* x, const float* mean, const float* rstd, int64_t offset,
                     bool first, bool accumulate);
  void backward_activation(const layer_activations& l, const layer_offsets& w, bool accumulate);
  // The gradient of a bias.
  void sum_columns(const tk::column_sums_plan& plan, const void* x, int64_t offset,
                   bool accumulate);

  // What follows, for the profile: so many matrices [rows, width] go in or out of memory.
  void begin(const char* name, double matrices, double flops = 0) {
    if (profile_ == nullptr) return;
    profile_->begin({name, flops, matrices * double(shape_.rows() * config_.width * element())});
  }
  // Of a matrix that is so wide, by one that is as wide as the stream.
  double share_of(int64_t width) const { return double(width) / double(config_.width); }
  // Of the forward, by two products, of which a causal mask leaves half.
  double attention_flops() const {
    return 2 * double(shape_.rows()) * double(shape_.length) * double(config_.width);
  }
  void multiply(int product, const operands& o);
  // What follows is a product beside gelu, for the profile: it moves x, and two matrices [rows,
  // hidden].
  void begin_gelu_product(const char* name) {
    const int64_t hidden = config_.mlp_width();
    const double products = double(shape_.rows()) * double(config_.width) * double(hidden);
    begin(name, 1 + 2 * share_of(hidden), 2 * products);
  }
  // The gradient of a weight, by what goes in and the gradient of what comes out.
  void multiply_weight(int product, const void* x, const void* dy, int64_t offset,
                       bool accumulate) {
    const void* const a = config_.is_llama ? dy : x;
    const void* const b = config_.is_llama ? x : dy;
    multiply(product, {.a = a, .b = b, .c = gradient(offset), .accumulate = accumulate});
  }
  // Where a part of a weight lies, that of the outputs from number `first` on.
  int64_t part_of(int64_t weight, int64_t first, int64_t in) const {
    return weight + (config_.is_llama ? first * in : first);
  }
  int64_t element() const { return kittens::host::bytes_of(type_); }
  float* numbers() const { return memory_->numbers + shape_.rank * results(shape_).numbers(); }
  tk::workspace work() const { return {memory_->workspace, memory_->counters}; }
  void* gradient(int64_t offset) const { return at(memory_->gradients, offset); }

  config config_;
  run_shape shape_;
  dtype type_;
  outlier_options outliers_;
  queue& queue_;
  profile* profile_ = nullptr;
  bool chooses_ = false;
  parameters parameters_;
  std::vector<layer_offsets> offsets_;
  shards shards_;
  int64_t last_norm_;
  products products_;

  // Products: of the forward, of its inputs' gradients, of the weights' gradients.
  int qkv_, proj_, fc_, fc_proj_, logits_;
  int d_qkv_, d_proj_, d_fc_, d_fc_proj_, d_logits_;
  int w_qkv_, w_proj_, w_fc_, w_fc_proj_, w_logits_;

  struct plans {
    tk::norm_forward_plan first_norm, norm;
    tk::norm_backward_plan norm_backward;
    std::optional<tk::attention_forward_plan> attention;  // not of float32
    std::optional<tk::attention_backward_plan> attention_backward;
    std::optional<tk::linear_gelu_plan> linear_gelu;  // of bfloat16
    std::optional<tk::linear_gelu_backward_plan> linear_gelu_backward;
    std::optional<tk::gelu_forward_plan> gelu;  // of float32, or to recompute it
    std::optional<tk::gelu_backward_plan> gelu_backward;
    // Of biases behind a product of that width, and of q's.
    std::optional<tk::column_sums_plan> sums, query_sums, hidden_sums;
    std::optional<tk::gated_forward_plan> swiglu;
    std::optional<tk::gated_backward_plan> swiglu_backward;
    std::optional<tk::rotary_plan> rotary, rotary_backward;
    tk::cross_entropy_forward_plan loss, loss_and_gradient;
    tk::cross_entropy_total_plan total;
    tk::grad_norm_plan grad_norm;
    std::optional<tk::adamw_plan> adamw_matrices, adamw_vectors;  // if a rank has some
  };
  std::optional<plans> plans_;
  std::optional<buffers> memory_;
  std::optional<exchange> exchange_;
};

}  // namespace gpt2
