// Where packed sequences start and end, as kernels read it.
#pragma once

#include <kittens.cuh>

namespace thunderkittens::inline KITTENS_TARGET {

using namespace kittens;

// cu_seqlens: where packed sequences start, and the last one ends.
struct sequence_ends {
  const void* numbers;
  bool is_int64;  // else int32

  // Number i, but within `least` and `most`.
  KITTENS_DEVICE int at(int i, int least, int most) const {
    const int64_t n = is_int64 ? arch::load_global(static_cast<const int64_t*>(numbers) + i)
                               : arch::load_global(static_cast<const int*>(numbers) + i);
    return n < least ? least : n > most ? most : static_cast<int>(n);
  }
};

inline constexpr int kNotPacked = -1;

}  // namespace thunderkittens::inline KITTENS_TARGET
