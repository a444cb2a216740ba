// GPT-2, and a step of its training: forward, backward, AdamW.
//
//   x = wte[token] + wpe[position]
//   for each block:   x = x + attention(layer_norm(x));   x = x + mlp(layer_norm(x))
//   logits = layer_norm(x) · wteᵀ,   loss = mean cross entropy of the next token
//
// What is added to x, the addition and the norm behind it are one launch; so are a loss and its
// gradient, which replaces the logits. All functions are asynchronous, and allocate nothing but the
// constructor.
#pragma once

#include <optional>

#include "buffers.h"
#include "products.h"
#include "thunderkittens/kernels/activation.h"
#include "thunderkittens/kernels/adamw.h"
#include "thunderkittens/kernels/attention.h"
#include "thunderkittens/kernels/cross_entropy.h"
#include "thunderkittens/kernels/norm.h"

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

// Where a layer's parameters lie, in elements.
struct layer_offsets {
  int64_t norm1, qkv, qkv_bias, proj, proj_bias, norm2, fc, fc_bias, fc_proj, fc_proj_bias;
};

class model {
 public:
  model(const config& c, const run_shape& shape, dtype type, const update_options& options,
        const device& d, queue& q);

  // Forward and backward of micro-batch `number`, whose tokens are there; gradients are added up
  // from number 0 on.
  void train(int64_t number);
  // AdamW on the summed gradients, clipped, at the learning rate that is in memory; or nothing, if
  // the step is an outlier or its gradients are not finite. It counts the updates.
  void update();
  // The sum of the losses of micro-batch 0.
  void evaluate();

  const parameters& layout() const { return parameters_; }
  buffers& memory() { return *memory_; }
  // The weights that updates change, the master weights where there are some. Waits for them.
  std::vector<float> exact_weights();
  // Sets them, and `weights` to what they are rounded to the nearest.
  void set_weights(const std::vector<float>& values);
  const config& sizes() const { return config_; }
  const run_shape& shape() const { return shape_; }
  const outlier_options& outliers() const { return outliers_; }
  dtype type() const { return type_; }
  const layer_offsets& offsets(size_t layer) const { return offsets_[layer]; }
  int64_t last_norm() const { return last_norm_; }
  // Addresses: of a weight, and of an element of something of the model's type.
  void* weight(int64_t offset) const { return at(memory_->weights, offset); }
  void* at(void* base, int64_t elements) const {
    return static_cast<std::byte*>(base) + elements * kittens::host::bytes_of(type_);
  }
  bool fuses_gelu() const { return fc_gelu_ != products::kNone; }

 private:
  void plan_ops(const update_options& options, const device& d);
  void plan_products();
  int64_t workspace_bytes() const;
  int64_t most_counters() const;

  void forward(const token_batch& batch);
  void forward_attention(const layer_activations& l);
  void forward_mlp(const layer_activations& l, const layer_offsets& w);
  void losses(const token_batch& batch, int64_t number, bool gradient);
  void backward(const token_batch& batch, bool accumulate);
  void backward_mlp(const layer_activations& l, const layer_offsets& w, bool accumulate);
  void backward_attention(const layer_activations& l, const layer_offsets& w, bool accumulate);
  void backward_norm(const void* x, const float* mean, const float* rstd, int64_t offset,
                     bool first, bool accumulate);
  void sum_columns(const column_sums_problem& p, const void* x, int64_t offset, bool accumulate);

  void multiply(int product, const operands& o) {
    products_.run(product, o, memory_->workspace, queue_.handle());
  }
  tk::workspace work() const { return {memory_->workspace, memory_->counters}; }
  void* gradient(int64_t offset) const { return at(memory_->gradients, offset); }

  config config_;
  run_shape shape_;
  dtype type_;
  outlier_options outliers_;
  queue& queue_;
  parameters parameters_;
  std::vector<layer_offsets> offsets_;
  int64_t last_norm_;
  products products_;

  // Products: of the forward, of its inputs' gradients, of the weights' gradients.
  int qkv_, proj_, fc_, fc_gelu_, fc_proj_, logits_;
  int d_qkv_part_, d_proj_, d_fc_, d_fc_proj_, d_fc_proj_gelu_, d_logits_;
  int w_qkv_part_, w_proj_, w_fc_, w_fc_proj_, w_logits_;

  struct plans {
    tk::norm_forward_plan first_norm, norm;
    tk::norm_backward_plan norm_backward;
    std::optional<tk::attention_forward_plan> attention;  // not of float32
    std::optional<tk::attention_backward_plan> attention_backward;
    tk::gelu_forward_plan gelu;
    tk::gelu_backward_plan gelu_backward;
    tk::cross_entropy_forward_plan loss, loss_and_gradient;
    tk::cross_entropy_total_plan total;
    tk::grad_norm_plan grad_norm;
    tk::adamw_plan adamw_matrices, adamw_vectors;
  };
  std::optional<plans> plans_;
  std::optional<buffers> memory_;
};

}  // namespace gpt2
