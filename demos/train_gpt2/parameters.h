// GPT-2's parameters: names and shapes of Hugging Face's checkpoints, and where each lies in one
// allocation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpt2 {

struct config {
  int64_t vocabulary = 50257, positions = 1024, width = 768, layers = 12, heads = 12;
  float epsilon = 1e-5f;

  int64_t head_dim() const { return width / heads; }
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
  int64_t norms = 0;     // where the norms begin
  int64_t total = 0;

  int64_t count() const;                                 // of all, without padding
  const parameter& find(const std::string& name) const;  // one that is there
};

// GPT-2's first values, in float32 at their offsets: normal ones of deviation 0.02, and less for
// what is added to the residual stream; a function of the seed alone.
std::vector<float> first_values(const parameters& p, uint64_t seed);

}  // namespace gpt2
