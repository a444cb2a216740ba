// A model's sizes; its parameters, with names and shapes of Hugging Face's checkpoints, and where
// each lies in one allocation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpt2 {

struct config {
  int64_t vocabulary = 50257, positions = 1024, width = 768, layers = 12, heads = 12;
  float epsilon = 1e-5f;
  // Of Llama's shape: RMSNorm, rotary embeddings, SwiGLU, fewer heads of keys, no biases. Its
  // matrices are [out, in], GPT-2's [in, out].
  bool is_llama = false;
  int64_t key_heads = 0;  // 0: as many as heads
  int64_t hidden = 0;     // of the MLP; 0: 4 · width, of Llama's shape 8/3 · width
  double theta = 10000;   // of the rotary embeddings

  int64_t head_dim() const { return width / heads; }
  int64_t heads_of_keys() const { return key_heads > 0 ? key_heads : heads; }
  int64_t key_width() const { return heads_of_keys() * head_dim(); }
  int64_t qkv_width() const { return width + 2 * key_width(); }
  int64_t mlp_width() const {
    if (hidden > 0) return hidden;
    return is_llama ? (8 * width / 3 + 7) / 8 * 8 : 4 * width;
  }
  // Matrices that go to the MLP's hidden layer: Llama's has a gate, too.
  int64_t mlp_parts() const { return is_llama ? 2 : 1; }
  // The embedding's rows: a multiple of 128, so that the logits' rows and products are aligned.
  // Those behind the vocabulary are zero, and stay so: their logits are never read, and their
  // gradients are zero.
  int64_t padded_vocabulary() const { return (vocabulary + 127) / 128 * 128; }
};

// The largest numbers that make sense: what is beyond them is an accident. "" or what is wrong.
std::string why_not(const config& c);

struct parameter {
  std::string name;
  std::vector<int64_t> shape;  // as in a file
  int64_t offset;              // in elements, of the allocation
  float mean, deviation;       // of its first values

  int64_t elements() const;
};

// All of them, in the order of the allocation: matrices, whose weights decay, then vectors. The
// norms' are the last, layer by layer: their gradients are one range.
struct parameters {
  explicit parameters(const config& c);

  std::vector<parameter> all;
  int64_t matrices = 0;  // elements of the matrices, with the embedding's padding
  int64_t norms = 0;  // where the norms begin; of Llama's shape, which has no biases, the vectors
  int64_t total = 0;

  int64_t count() const;                                 // of all, without padding
  const parameter& find(const std::string& name) const;  // one that is there

 private:
  void place_gpt2(const config& c);
  void place_llama(const config& c);
  void place(std::string name, std::vector<int64_t> shape, float mean, float deviation);
};

// The first values, as GPT-2's, in float32 at their offsets: normal ones of deviation 0.02, and
// less for what is added to the residual stream; a function of the seed alone.
std::vector<float> first_values(const parameters& p, uint64_t seed);

}  // namespace gpt2
