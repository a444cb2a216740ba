// rotary: picks the configuration, launches, and enters the launcher in the table.
#include "kernels/rotary/rotary.h"

#include <algorithm>

#include "kernels/rotary/rotary.cuh"
#include "kittens/host/launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::inline KITTENS_TARGET {
namespace {

using kittens::host::launch;
using kittens::host::stream;

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

template <class Config>
rotary_layout layout_of(const rotary_params& p) {
  const int rotated_units = p.rotated / (2 * Config::run);
  const int to_copy = p.in_place ? 0 : p.width - p.rotated;
  const int units = rotated_units + ceil_div(to_copy, 2 * Config::run);
  const int heads = p.q.heads + p.k.heads;
  const int slots = std::min(ceil_div(heads, Config::heads), std::max(1, Config::threads / units));
  const int tokens = std::clamp(Config::threads / (slots * units), 1, p.tokens);
  return {rotated_units, units, slots, tokens, ceil_div(p.tokens, tokens)};
}

template <class Config>
void launch_with(const rotary_params& p, stream s) {
  const rotary_layout layout = layout_of<Config>(p);
  const int warps = ceil_div(layout.tokens * layout.slots * layout.units, kWarp);
  const int64_t blocks = int64_t(p.batch) * layout.chunks;
  launch(rotary<Config>, {{blocks}, {warps * kWarp}}, s, p, layout);
}

// Whether everything starts and is apart by multiples of 16 bytes: runs, heads, rows of the table.
bool is_aligned(const rotary_params& p) {
  const int64_t size = bytes_of(p.type), table_size = bytes_of(p.table_type);
  bool aligned = in_runs_of_16_bytes(
      {p.cos, p.sin},
      {p.cos_stride * table_size, p.sin_stride * table_size, p.width * size, p.rotated / 2 * size});
  for (const rotary_operand* t : {&p.q, &p.k}) {
    if (t->heads == 0) continue;
    for (const rotary_strides* s : {&t->in_strides, &t->out_strides}) {
      aligned &=
          in_runs_of_16_bytes({t->in, t->out}, {s->batch * size, s->token * size, s->head * size});
    }
  }
  return aligned;
}

// A thread that turns its heads one after the other leaves room for more threads: 134 against 138 µs
// for 4 × 4096 tokens of 32 + 32 heads of 128 (bf16, H200). With four on their way at once, a few
// tokens take less time, and so do heads that are few threads (70 against 72 µs with 64 instead of
// 128).
template <class T, int Run, bool Interleaved>
void launch_runs(const rotary_params& p, stream s) {
  if constexpr (Run > 1) {
    const bool many_tokens = int64_t(p.batch) * p.tokens >= 512;
    if (many_tokens && p.rotated / (2 * Run) >= 8) {
      return launch_with<rotary_config<T, Run, Interleaved, 1>>(p, s);
    }
  }
  launch_with<rotary_config<T, Run, Interleaved, 4>>(p, s);
}

void launch_rotary(const rotary_params& p, stream s) {
  with_elements(p.type, is_aligned(p), [&]<class T, int Run>() {
    if (p.interleaved) {
      launch_runs<T, Run, true>(p, s);
    } else {
      launch_runs<T, Run, false>(p, s);
    }
  });
}

KITTENS_LAUNCHER("rotary", rotary_params, launch_rotary);

}  // namespace
}  // namespace thunderkittens::inline KITTENS_TARGET
