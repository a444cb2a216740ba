#include "buffers.h"

#include <algorithm>
#include <cstdio>

namespace gpt2 {

using kittens::host::bytes_of;

double results::loss_in(const float* all) const {
  double sum = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t i = 0; i < micro_steps; ++i) sum += all[rank * numbers() + i];
  }
  return sum;
}

buffers::buffers(const config& c, const parameters& p, const shards& s, const run_shape& shape,
                 dtype type, const extents& more, const device& d, nccl* between)
    : layers(c.layers),
      parameter_memory(d, place::device, between),
      gradient_memory(d, place::device, between),
      state_memory(d, place::device),
      activation_memory(d, place::device),
      workspace_memory(d, place::device) {
  const int64_t element = bytes_of(type);
  parameter_memory.allocate([&] { weights = parameter_memory.take_bytes(s.total * element); });
  gradient_memory.allocate([&] {
    gradients = gradient_memory.take_bytes(s.total * element);
    norm_gradients = gradient_memory.take_bytes((p.total - p.norms) * element);
    const int64_t parts = between == nullptr ? 0 : shape.ranks;
    received = gradient_memory.take_bytes(parts * s.largest_part() * element);
  });
  state_memory.allocate([&] {
    exp_avg = state_memory.take<float>(s.state);
    exp_avg_sq = state_memory.take<float>(s.state);
    master = more.master ? state_memory.take<float>(s.state) : nullptr;
  });
  activation_memory.allocate([&] { lay_out_activations(c, shape, element); });
  workspace_memory.allocate([&] {
    workspace = workspace_memory.take_bytes(more.workspace_bytes);
    counters = workspace_memory.take<int>(more.counters);
    tokens = workspace_memory.take<int>(shape.micro_steps * token_batch::ints(shape.rows()));
    lay_out_numbers(shape, s, more);
    const int64_t angles = c.is_llama ? shape.length * c.head_dim() / 2 : 0;
    cos = workspace_memory.take<float>(angles);
    sin = workspace_memory.take<float>(angles);
  });
}

void buffers::lay_out_numbers(const run_shape& shape, const shards& s, const extents& more) {
  arena& memory = workspace_memory;
  numbers = memory.take<float>(results(shape).floats());
  row_weight = memory.take<float>(1);
  learning_rate = memory.take<float>(1);
  updates = memory.take<float>(int64_t(s.pieces().size()));
  update_norm = memory.take<float>(1);
  for (outlier_window* const w : {&loss_window, &norm_window}) {
    *w = {memory.take<float>(more.outlier_window), memory.take<int>(1)};
  }
}

void buffers::lay_out_activations(const config& c, const run_shape& shape, int64_t element) {
  const int64_t rows = shape.rows(), hidden = c.mlp_width();
  arena& memory = activation_memory;
  const auto matrix = [&](int64_t width) { return memory.take_bytes(rows * width * element); };
  const auto statistic = [&] { return memory.take<float>(rows); };
  const auto mean = [&]() -> float* { return c.is_llama ? nullptr : statistic(); };
  const auto per_head = [&] { return memory.take<float>(rows * c.heads); };
  void* const shared = shape.recompute ? matrix(hidden) : nullptr;
  for (layer_activations& l : layers) {
    l = {.normal1 = matrix(c.width),
         .qkv = matrix(c.qkv_width()),
         .attended = matrix(c.width),
         .middle = matrix(c.width),
         .normal2 = matrix(c.width),
         .hidden = matrix(c.mlp_parts() * hidden),
         .output = matrix(c.width),
         .activated = shape.recompute ? shared : matrix(hidden),
         .mean1 = mean(),
         .rstd1 = statistic(),
         .lse = per_head(),
         .mean2 = mean(),
         .rstd2 = statistic()};
  }
  embedded = matrix(c.width);
  branch = matrix(c.width);
  last_normal = matrix(c.width);
  last_mean = mean();
  last_rstd = statistic();
  losses = statistic();
  dnormal = matrix(c.width);
  delta = per_head();
  // The gradients of the logits are done with before those of the layers begin; and a layer's MLP
  // with dhidden before its attention begins.
  const int64_t of_mlp = (c.is_llama ? 3 : 1) * hidden, of_attention = c.width + c.qkv_width();
  const int64_t of_layers = 2 * c.width + std::max(of_mlp, of_attention);
  logits = matrix(std::max(c.padded_vocabulary(), of_layers));
  if (logits == nullptr) return;  // not there yet
  const auto behind = [&](int64_t width) {
    return static_cast<std::byte*>(logits) + rows * width * element;
  };
  dhidden = logits;
  dattended = logits;
  dqkv = behind(c.width);
  dstream[0] = behind(of_layers - 2 * c.width);
  dstream[1] = behind(of_layers - c.width);
}

std::string buffers::description(int64_t sampling_bytes) const {
  const struct {
    const char *kind, *holds;
    int64_t bytes;
  } rows[] = {
      {"parameters", "weights", parameter_memory.bytes()},
      {"gradients", "of all weights", gradient_memory.bytes()},
      {"optimizer state", master == nullptr ? "moments" : "moments, master weights",
       state_memory.bytes()},
      {"activations", "of every layer, logits, their gradients", activation_memory.bytes()},
      {"workspace", "of kernels, tokens, results", workspace_memory.bytes()},
      {"sampling", "keys and values, a token's activations", sampling_bytes},
  };
  std::string text;
  char line[128];
  int64_t total = 0;
  for (const auto& row : rows) {
    if (row.bytes == 0) continue;
    std::snprintf(line, sizeof(line), "%-16s %10.1f MiB  %s\n", row.kind,
                  double(row.bytes) / (1 << 20), row.holds);
    text += line;
    total += row.bytes;
  }
  std::snprintf(line, sizeof(line), "%-16s %10.1f MiB\n", "device memory",
                double(total) / (1 << 20));
  return text + line;
}

}  // namespace gpt2
