// One warp judges a step: its lanes share out the windows.
#include "outliers.h"

#include <cfloat>

#include <kittens/host/launch.cuh>

#include "lane_values.cuh"

namespace gpt2 {
namespace {

// Puts a value into its window; its z there, NaN where there is none.
KITTENS_DEVICE float enter(const outlier_window& w, int size, float value) {
  if (!(fabsf(value) <= FLT_MAX)) return NAN;
  const bool first_lane = arch::lane_id() == 0;
  const int seen = arch::shuffle(first_lane ? arch::load_global(w.seen) : 0, 0);
  const int slot = seen % size;
  const auto sum_over = [&](const auto& f) {
    float sum = 0;
    for (int i = arch::lane_id(); i < size; i += 32) {
      sum += f(i == slot ? value : arch::load_global(w.values + i));
    }
    return warp_sum(sum) / static_cast<float>(size);
  };
  float z = NAN;
  if (seen >= size) {
    const float mean = sum_over([](float x) { return x; });
    const float variance = sum_over([&](float x) { return (x - mean) * (x - mean); });
    z = variance > 0 ? (value - mean) / sqrtf(variance) : 0.0f;
  }
  if (first_lane) {
    arch::store_global(w.values + slot, value);
    arch::store_global(w.seen, seen + 1 == 2 * size ? size : seen + 1);
  }
  return z;
}

__global__ void __launch_bounds__(32) judge_kernel(judge_problem p, judge_tensors t) {
  float loss = 0, squares = 0, norm = 0;
  const float* number = t.numbers;
  for (int64_t rank = 0; rank < p.ranks; ++rank) {
    for (int64_t i = 0; i < p.micro_steps; ++i) loss += arch::load_global(number++);
    norm = arch::load_global(number++);
    squares += norm * norm;
  }
  if (p.ranks > 1) norm = sqrtf(squares);
  const int size = static_cast<int>(p.options.window);
  const float loss_z = enter(t.of_losses, size, loss / static_cast<float>(p.rows));
  const float norm_z = enter(t.of_norms, size, norm);
  const auto beyond = [](float z, double limit) { return limit > 0 && z > limit; };  // NaN is not
  const bool skipped =
      !(norm <= FLT_MAX) || beyond(loss_z, p.options.loss_z) || beyond(norm_z, p.options.norm_z);
  if (arch::lane_id() != 0) return;
  arch::store_global(&t.said->norm, norm);
  arch::store_global(&t.said->loss_z, loss_z);
  arch::store_global(&t.said->norm_z, norm_z);
  arch::store_global(&t.said->skipped, skipped ? 1.0f : 0.0f);
  arch::store_global(t.update_norm, skipped ? INFINITY : norm);
}

}  // namespace

void judge(const judge_problem& p, const judge_tensors& t, stream s) {
  host::launch(judge_kernel, {.grid = {1}, .block = {32}}, s, p, t);
}

}  // namespace gpt2
