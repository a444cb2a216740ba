// rotary: picks the configuration, launches, and enters the launcher in the table.
#include "kernels/rotary/rotary.h"

#include <algorithm>

#include "kernels/rotary/rotary.cuh"
#include "kittens/host/ceil_div.h"
#include "kittens/host/launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::rotary_kernels::inline KITTENS_TARGET {
namespace {

using kittens::host::ceil_div;
using kittens::host::launch_programmatic;
using kittens::host::stream;

// The most threads of a block, if a head does not take more: 96, or of floats, whose heads are
// twice as many bytes, 192. (64 … 128 were measured, with as many heads one after the other as
// follow from it: with runs of 16 bytes none is 1 % faster. 4 × 4096 tokens, 32 + 32 heads of 128
// floats: 257 µs, and 261 with 96 threads.)
template <class T>
constexpr int kThreads = 48 * int(sizeof(T));

// Up to here blocks share a token's heads. (One token of 32 + 8 heads of 128: 1.9 against 2.2 µs in
// one block; 4 × 4096 tokens: 95 against 86 µs.)
constexpr int64_t kFewTokens = 512;

template <class Config>
void launch_with(const rotary_params& p, stream s) {
  constexpr int kMost = kThreads<typename Config::type>;
  const int rotated_units = p.rotated / (2 * Config::run);
  const int to_copy = p.in_place ? 0 : p.width - p.rotated;
  const int64_t units = rotated_units + ceil_div(to_copy, 2 * Config::run);
  const int64_t heads = p.q.heads + p.k.heads;
  // No more heads side by side than a block has room for; a single one has more threads if need be.
  const int64_t room = std::max<int64_t>(kMost / units, 1);
  const int64_t steps = ceil_div(heads, Config::heads * room);
  const int64_t slots = ceil_div(heads, Config::heads * steps);
  const int64_t tokens = std::clamp<int64_t>(kMost / (slots * units), 1, p.tokens);
  const int64_t chunks = ceil_div(p.tokens, tokens), blocks = p.batch * chunks;
  const bool few = int64_t(p.batch) * p.tokens <= kFewTokens;
  const int64_t warps = ceil_div(tokens * slots * units, kWarp);
  launch_programmatic(
      rotary<Config>,
      {.grid = {blocks, few ? std::min(steps, kittens::host::kMaxGridYZ) : 1},
       .block = {warps * kWarp},
       .max_threads = Config::max_threads},
      s, p, {rotated_units, small_divisor(units), small_divisor(slots), int(tokens), int(chunks)});
}

// Whether everything starts and is apart by multiples of `bytes`: runs, heads, rows of the table.
// (Runs of the table are longer where only its elements are float.)
bool in_runs_of(int64_t bytes, const rotary_params& p) {
  const int64_t size = bytes_of(p.type), table_size = bytes_of(p.table_type);
  const auto address = [](const void* data) { return reinterpret_cast<int64_t>(data); };
  const int64_t table =
      address(p.cos) | address(p.sin) | p.cos_stride * table_size | p.sin_stride * table_size;
  int64_t data = p.width * size | p.rotated / 2 * size;
  for (const rotary_operand* t : {&p.q, &p.k}) {
    if (t->heads == 0) continue;
    data |= address(t->in) | address(t->out);
    for (const rotary_strides* s : {&t->in_strides, &t->out_strides}) {
      data |= s->batch * size | s->token * size | s->head * size;
    }
  }
  return data % bytes == 0 && table % std::min<int64_t>(16, bytes / size * table_size) == 0;
}

template <class T, int Run>
void launch_runs(const rotary_params& p, stream s) {
  constexpr int kHeads = Run == 1 ? 4 : 32 / (Run * int(sizeof(T)));
  if (p.interleaved) {
    launch_with<rotary_config<T, Run, true, kHeads>>(p, s);
  } else {
    launch_with<rotary_config<T, Run, false, kHeads>>(p, s);
  }
}

void launch_rotary(const rotary_params& p, stream s) {
  with_elements(p.type, in_runs_of(16, p), [&]<class T, int Run>() {
    if constexpr (Run == 1 && sizeof(T) == 2) {
      if (in_runs_of(4, p)) return launch_runs<T, 2>(p, s);
    }
    launch_runs<T, Run>(p, s);
  });
}

KITTENS_LAUNCHER(kRotary, launch_rotary);

}  // namespace
}  // namespace thunderkittens::rotary_kernels::inline KITTENS_TARGET
