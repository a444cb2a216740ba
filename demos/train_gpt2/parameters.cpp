#include "parameters.h"

#include <algorithm>
#include <cmath>

#include "parallel.h"
#include "random.h"
#include "thunderkittens/kernels/common.h"

namespace gpt2 {
namespace {

std::string out_of_range(const char* what, int64_t most, int64_t got) {
  return std::string(what) + " must be 1 to " + std::to_string(most) + ", got " +
         std::to_string(got);
}

constexpr float kDeviation = 0.02f;
// Of what is added to the residual stream.
float residual_deviation(const config& c) {
  return kDeviation / std::sqrt(2.0f * static_cast<float>(c.layers));
}

}  // namespace

std::string why_not(const config& c) {
  const struct {
    const char* what;
    int64_t most, got;
  } limits[] = {{"the vocabulary", 1 << 20, c.vocabulary},
                {"positions", 1 << 20, c.positions},
                {"the width", 1 << 14, c.width},
                {"layers", 256, c.layers},
                {"heads", 1024, c.heads},
                {"heads of keys", 1024, c.heads_of_keys()},
                {"the MLP's width", 1 << 16, c.mlp_width()}};
  for (const auto& limit : limits) {
    if (limit.got < 1 || limit.got > limit.most) {
      return out_of_range(limit.what, limit.most, limit.got);
    }
  }
  const std::string sizes = std::to_string(c.width) + " and " + std::to_string(c.heads) + " heads";
  if (c.width % c.heads != 0) return "the width must be a multiple of the heads, got " + sizes;
  if (c.head_dim() % 8 != 0 || c.head_dim() > 256) {
    return "width / heads must be one of 8, 16 … 256, got " + sizes;
  }
  if (c.heads % c.heads_of_keys() != 0) {
    return "the heads must be a multiple of those of keys, got " + std::to_string(c.heads) +
           " and " + std::to_string(c.heads_of_keys());
  }
  if (c.mlp_width() % 8 != 0) {
    return "the MLP's width must be a multiple of 8, got " + std::to_string(c.mlp_width());
  }
  return "";
}

int64_t parameter::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

parameters::parameters(const config& c) { c.is_llama ? place_llama(c) : place_gpt2(c); }

void parameters::place(std::string name, std::vector<int64_t> shape, float mean, float deviation) {
  all.push_back({std::move(name), std::move(shape), total, mean, deviation});
  total += all.back().elements();
}

void parameters::place_gpt2(const config& c) {
  const int64_t width = c.width, hidden = c.mlp_width();
  const auto each_layer = [&](const auto& f) {
    for (int64_t l = 0; l < c.layers; ++l) f("h." + std::to_string(l) + ".");
  };
  place("wte.weight", {c.vocabulary, width}, 0, kDeviation);
  total = c.padded_vocabulary() * width;
  place("wpe.weight", {c.positions, width}, 0, kDeviation);
  each_layer([&](const std::string& layer) {
    place(layer + "attn.c_attn.weight", {width, 3 * width}, 0, kDeviation);
    place(layer + "attn.c_proj.weight", {width, width}, 0, residual_deviation(c));
    place(layer + "mlp.c_fc.weight", {width, hidden}, 0, kDeviation);
    place(layer + "mlp.c_proj.weight", {hidden, width}, 0, residual_deviation(c));
  });
  matrices = total;
  each_layer([&](const std::string& layer) {
    place(layer + "attn.c_attn.bias", {3 * width}, 0, 0);
    place(layer + "attn.c_proj.bias", {width}, 0, 0);
    place(layer + "mlp.c_fc.bias", {hidden}, 0, 0);
    place(layer + "mlp.c_proj.bias", {width}, 0, 0);
  });
  norms = total;
  const auto place_norm = [&](const std::string& name) {
    place(name + ".weight", {width}, 1, 0);
    place(name + ".bias", {width}, 0, 0);
  };
  each_layer([&](const std::string& layer) {
    place_norm(layer + "ln_1");
    place_norm(layer + "ln_2");
  });
  place_norm("ln_f");
}

// The matrices of q, k and v lie behind one another, as those of gate and up: one of [out, in].
void parameters::place_llama(const config& c) {
  const int64_t width = c.width, keys = c.key_width(), hidden = c.mlp_width();
  const auto each_layer = [&](const auto& f) {
    for (int64_t l = 0; l < c.layers; ++l) f("model.layers." + std::to_string(l) + ".");
  };
  place("model.embed_tokens.weight", {c.vocabulary, width}, 0, kDeviation);
  total = c.padded_vocabulary() * width;
  each_layer([&](const std::string& layer) {
    place(layer + "self_attn.q_proj.weight", {width, width}, 0, kDeviation);
    place(layer + "self_attn.k_proj.weight", {keys, width}, 0, kDeviation);
    place(layer + "self_attn.v_proj.weight", {keys, width}, 0, kDeviation);
    place(layer + "self_attn.o_proj.weight", {width, width}, 0, residual_deviation(c));
    place(layer + "mlp.gate_proj.weight", {hidden, width}, 0, kDeviation);
    place(layer + "mlp.up_proj.weight", {hidden, width}, 0, kDeviation);
    place(layer + "mlp.down_proj.weight", {width, hidden}, 0, residual_deviation(c));
  });
  matrices = norms = total;
  each_layer([&](const std::string& layer) {
    place(layer + "input_layernorm.weight", {width}, 1, 0);
    place(layer + "post_attention_layernorm.weight", {width}, 1, 0);
  });
  place("model.norm.weight", {width}, 1, 0);
}

int64_t parameters::count() const {
  int64_t sum = 0;
  for (const parameter& p : all) sum += p.elements();
  return sum;
}

const parameter& parameters::find(const std::string& name) const {
  for (const parameter& p : all) {
    if (p.name == name) return p;
  }
  throw thunderkittens::error("there is no parameter " + name);
}

std::vector<float> first_values(const parameters& p, uint64_t seed) {
  std::vector<float> values(p.total, 0.0f);
  // Values i and i + 1, of an even i, are a pair, of the numbers i and i + 1, whoever computes it.
  // Sizes and offsets are even: widths are multiples of 8.
  in_parallel(p.total / 2, [&](int64_t from, int64_t to) {
    for (const parameter& one : p.all) {
      const int64_t first = std::max(2 * from, one.offset);
      const int64_t end = std::min(2 * to, one.offset + one.elements());
      if (first >= end) continue;
      if (one.deviation == 0) {
        std::fill(values.begin() + first, values.begin() + end, one.mean);
        continue;
      }
      random_numbers random(seed, static_cast<uint64_t>(first));
      for (int64_t i = first; i < end; i += 2) {
        const auto [a, b] = random.normal_pair();
        values[i] = one.mean + one.deviation * a;
        values[i + 1] = one.mean + one.deviation * b;
      }
    }
  });
  return values;
}

}  // namespace gpt2
