// attention_decode: the forms of its kernel, which differ in how much lies in shared memory: data.
#pragma once

#include <kittens.cuh>

#include <type_traits>

#include "kernels/attention_decode/attention_decode.h"
#include "kittens/host/device.h"
#include "kittens/types/fp8.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

using namespace kittens;

// A block has a multiprocessor to itself, and beside the rings of its 8 warps 34 KB of parts. So
// that memory never waits, the multiprocessors need on their way what comes in during the latency
// of memory, some 0.8 µs: 29 KB each of an H200 (4.8 TB/s), 15 KB of an A100 (2.0 TB/s), 9 KB of an
// RTX 5090 (1.8 TB/s). Of the rings that is the part that is not being read: of 8 warps that take
// turns at waiting and at products, half and more, even where a tile of keys fills a ring.
struct decode_form {
  int shared_kb;  // that a block may have, at least
  int ring_kb;    // of a warp
};

// clang-format off
inline constexpr decode_form kDecodeForms[] = {
    // shared_kb ring_kb
    {        227,     24},  // sm_90a, sm_100, sm_103
    {        163,     16},  // sm_80
    {         99,      8},  // sm_86, sm_89, sm_120
};
// clang-format on

// The form for a block that may have so much shared memory.
constexpr const decode_form& decode_form_of(int shared_kb) {
  const decode_form* form = kDecodeForms;
  while (form->shared_kb > shared_kb) ++form;
  return *form;
}

// A warp's ring where the cache is of e4m3: two tiles of 128 columns. Of six, which 24 KB hold,
// 1 × 32768 takes 28.2 µs, of two 25.8: the first is multiplied when all have been asked for.
inline constexpr int kE4m3RingKb = 8;
inline constexpr int kBlockSharedKb =
    host::facts_of(host::architecture::KITTENS_TARGET).block_shared_kb;

// T: bf16 or half. Columns: of a slice of a head; Padded: of which some may be missing. Cache: T or
// fp8e4m3. Slices: of a head, each of them a warp's; Heads: of keys, likewise. Rows: of a tile of
// queries. SharedKb: what a block may have, by the architecture.
template <class T, int Columns, class Cache = T, bool Padded = false, int Slices = 1, int Heads = 1,
          int Rows = kDecodeRows, int SharedKb = kBlockSharedKb>
struct decode_config {
  using type = T;
  using cache_type = Cache;
  static constexpr decode_form form = decode_form_of(SharedKb);
  static constexpr int columns = Columns, slices = Slices, heads = Heads;
  static constexpr int warps = Slices * Heads;  // of a turn
  static constexpr int rows = Rows, halves = Rows / kDecodeFewRows;
  static constexpr bool few_rows = Rows == kDecodeFewRows;
  static constexpr bool is_padded = Padded;
  static constexpr bool is_fp8 = sizeof(Cache) == 1;
  using product = std::conditional_t<is_fp8, half, T>;    // what the tensor cores multiply
  static constexpr int width = Columns == 64 ? 64 : 128;  // as lanes share a row of a part
  // Slots of 96 columns are as wide, so that there are four for three. Others lie where 128 would:
  // rows of 112, and of e4m3, have chunks of 32 bytes, of which the banks are not kept apart, and
  // 80 columns took 102 µs where 96 would lie, for 95 (benchmarks/attention_decode.md).
  static constexpr int slot_columns = Columns == 96 && !is_fp8 ? 96 : width;
  // Elements of e4m3 are moved in pairs.
  using tile = st<product, kDecodeKeys, slot_columns* int(sizeof(Cache)) / 2>;
  static constexpr int steps = Columns * int(sizeof(Cache)) / 2 / kBase;  // of 16 of its columns
  static_assert(Columns * int(sizeof(Cache)) / 2 % kBase == 0);
  // Of a warp, for a tile of keys or of values.
  static constexpr int ring_kb = is_fp8 && few_rows ? kE4m3RingKb : form.ring_kb;
  static constexpr int slots = ring_kb * 1024 / int(sizeof(tile));
  // Whether queries are asked for before the ring is filled: 1 × 4096 took 10.7 µs where they came
  // behind one tile, 11.3 behind three. Of e4m3 they are waited for, to be converted. (Of 16 rows
  // it is not measured.)
  static constexpr bool queries_first = few_rows && !is_fp8;
  static_assert(slots >= 1);
};

// Of one of kDecodeHeads.
template <class T, decode_heads Heads, class Cache, int Rows, int SharedKb>
using decode_config_of = decode_config<T, Heads.columns, Cache, Heads.is_padded(), Heads.slices,
                                       Heads.heads, Rows, SharedKb>;

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
