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

// `threads`: of a block, about.
template <class Config>
rotary_layout layout_of(const rotary_params& p, int threads) {
  const int rotated_units = p.rotated / (2 * Config::run);
  const int to_copy = p.in_place ? 0 : p.width - p.rotated;
  const int units = rotated_units + ceil_div(to_copy, 2 * Config::run);
  const int heads = p.q.heads + p.k.heads;
  const int slots = std::min(ceil_div(heads, Config::heads), std::max(1, threads / units));
  const int tokens = std::clamp(threads / (slots * units), 1, p.tokens);
  return {rotated_units, units, slots, tokens, ceil_div(p.tokens, tokens)};
}

template <class Config>
void launch_with(const rotary_params& p, int threads, stream s) {
  const rotary_layout layout = layout_of<Config>(p, threads);
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

// A thread that turns its heads one after the other leaves room for more threads: 134 against 138
// µs for 4 × 4096 tokens of 32 + 32 heads of 128 (bf16, H200). Four on their way at once are faster
// where a head is few threads (heads of 64: 69 against 72 µs, and 70 with blocks of 128), and for
// few tokens.
template <class T, int Run, bool Interleaved>
void launch_runs(const rotary_params& p, stream s) {
  const bool many_tokens = int64_t(p.batch) * p.tokens >= 512;
  const bool wide_heads = p.rotated / (2 * Run) >= 8;
  if constexpr (Run > 1) {
    if (many_tokens && wide_heads) {
      return launch_with<rotary_config<T, Run, Interleaved, 1>>(p, 128, s);
    }
  }
  launch_with<rotary_config<T, Run, Interleaved, 4>>(p, many_tokens && !wide_heads ? 64 : 128, s);
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
