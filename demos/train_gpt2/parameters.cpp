#include "parameters.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "random.h"
#include "thunderkittens/kernels/common.h"

namespace gpt2 {
namespace {

std::string out_of_range(const char* what, int64_t most, int64_t got) {
  return std::string(what) + " must be 1 to " + std::to_string(most) + ", got " +
         std::to_string(got);
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
                {"heads", 1024, c.heads}};
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
  return "";
}

int64_t parameter::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

parameters::parameters(const config& c) {
  const auto place = [&](std::string name, std::vector<int64_t> shape, float mean,
                         float deviation) {
    all.push_back({std::move(name), std::move(shape), total, mean, deviation});
    total += all.back().elements();
  };
  const auto each_layer = [&](const auto& f) {
    for (int64_t l = 0; l < c.layers; ++l) f("h." + std::to_string(l) + ".");
  };
  const int64_t width = c.width;
  constexpr float kDeviation = 0.02f;
  const float residual = kDeviation / std::sqrt(2.0f * static_cast<float>(c.layers));
  place("wte.weight", {c.vocabulary, width}, 0, kDeviation);
  total = c.padded_vocabulary() * width;
  place("wpe.weight", {c.positions, width}, 0, kDeviation);
  each_layer([&](const std::string& layer) {
    place(layer + "attn.c_attn.weight", {width, 3 * width}, 0, kDeviation);
    place(layer + "attn.c_proj.weight", {width, width}, 0, residual);
    place(layer + "mlp.c_fc.weight", {width, 4 * width}, 0, kDeviation);
    place(layer + "mlp.c_proj.weight", {4 * width, width}, 0, residual);
  });
  matrices = total;
  each_layer([&](const std::string& layer) {
    place(layer + "attn.c_attn.bias", {3 * width}, 0, 0);
    place(layer + "attn.c_proj.bias", {width}, 0, 0);
    place(layer + "mlp.c_fc.bias", {4 * width}, 0, 0);
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
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 64);
  // Value i has numbers 2 i and 2 i + 1, whoever computes it.
  const auto fill = [&](int64_t thread) {
    for (const parameter& one : p.all) {
      const int64_t from = one.offset + one.elements() * thread / threads;
      const int64_t to = one.offset + one.elements() * (thread + 1) / threads;
      random_numbers random(seed, 2 * static_cast<uint64_t>(from));
      for (int64_t i = from; i < to; ++i) {
        values[i] = one.mean + (one.deviation > 0 ? one.deviation * random.normal() : 0.0f);
      }
    }
  };
  std::vector<std::thread> others;
  for (int64_t thread = 1; thread < threads; ++thread) others.emplace_back(fill, thread);
  fill(0);
  for (std::thread& other : others) other.join();
  return values;
}

}  // namespace gpt2
