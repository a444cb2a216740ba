// Samples of a model: a token at a time, over a cache of keys and values.
#pragma once

#include <optional>
#include <vector>

#include "model.h"
#include "random.h"
#include "thunderkittens/kernels/attention_decode.h"

namespace gpt2 {

struct sampling_options {
  int64_t tokens = 0;       // of a sample
  double temperature = 1;   // 0: the most probable token
  int64_t top_k = 0;        // of so many most probable tokens; 0: of all
  std::vector<int> prompt;  // which a sample begins with; it is not part of it
};

// A token by its logits: each of the `top_k` most probable with the probability
// softmax(logits / temperature). Of equal logits the lower token comes first. Where all count, they
// are gone through in the order of their numbers, else from the most probable on.
int draw(const std::vector<float>& logits, const sampling_options& o, random_numbers& random);

// Keys and values of `attention_decode` where its kernel takes the heads: 8, 16, … 256 columns of
// bfloat16; else of attention_cached.
class sampler {
 public:
  // Of as many positions, at most the model's. Its weights are read where they lie.
  sampler(model& m, int64_t positions, const device& d, queue& q);

  // [vocabulary], of what comes behind `token` at `position`, whose predecessors have been passed
  // to it one after another. Waits for the device.
  std::vector<float> logits(int token, int64_t position);
  // What the options ask for; the same for the same weights and random numbers.
  std::vector<int> sample(const sampling_options& o, random_numbers random);

  int64_t bytes() const { return memory_.bytes(); }

 private:
  struct layer_cache {
    void *k, *v;  // [positions, heads of keys, head_dim]
  };

  void plan_ops(const device& d);
  void plan_attention(const device& d);
  void plan_products();
  void lay_out();
  void fill_tables();
  void attend(const layer_cache& cache);
  void activate();
  void multiply(int product, const void* a, int64_t weight, void* c, int64_t bias);

  model& model_;
  queue& queue_;
  config config_;
  int64_t positions_;
  products products_;
  int qkv_, proj_, fc_, fc_proj_, logits_product_;
  struct plans {
    tk::norm_forward_plan first_norm, norm;
    std::optional<tk::gelu_forward_plan> gelu;
    std::optional<tk::gated_forward_plan> swiglu;
    std::optional<tk::rotary_plan> rotary;
    std::optional<tk::cache_append_plan> append;
    std::optional<tk::attention_decode_plan> attention;
  };
  std::optional<plans> plans_;

  arena memory_;
  std::vector<layer_cache> caches_;
  // One row each.
  void *stream_[2], *normal_, *qkv_row_, *attended_, *branch_, *hidden_, *activated_, *logits_row_;
  void* workspace_;
  int* counters_;      // zero between launches
  float *cos_, *sin_;  // [positions, head_dim / 2], of Llama's shape
  int* step_;          // [3]: the token, how many keys there are, its position
};

}  // namespace gpt2
