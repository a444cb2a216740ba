// Moves one lane's run of neighbours, in as few memory instructions as possible.
#pragma once

#include <cstdint>
#include <cstring>

#include "kittens/arch/async_copy.cuh"
#include "kittens/arch/memory.cuh"
#include "kittens/types/lane_run.cuh"

namespace kittens::detail {

// The unsigned vector type of a given size: what one memory instruction moves.
template <int Bytes>
struct word;
template <>
struct word<2> {
  using type = unsigned short;
};
template <>
struct word<4> {
  using type = unsigned;
};
template <>
struct word<8> {
  using type = uint2;
};
template <>
struct word<16> {
  using type = uint4;
};

// A lane's run, in accesses of up to 16 bytes.
template <class T, int N>
struct run_access {
  static constexpr int kBytes = N * int(sizeof(T)) < 16 ? N * int(sizeof(T)) : 16;
  static constexpr int kWords = N * int(sizeof(T)) / kBytes;
  using word_type = typename word<kBytes>::type;

  // From global memory; zero where not `inside`. EvictLast: L2::evict_last; not of less than
  // 8 bytes, for accesses with the hint stay in their order (layer_norm of 16384 × 4095, single
  // elements, bf16: 108 µs, not 90, on an H200).
  template <bool EvictLast = false>
  KITTENS_DEVICE static void load(lane_run<T, N>& dst, const T* src, bool inside) {
    word_type words[kWords] = {};
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const auto* word = reinterpret_cast<const word_type*>(src) + i;
      if constexpr (EvictLast && kBytes >= 8) {
        words[i] = arch::load_global_evict_last(word, inside);
      } else if (inside) {
        words[i] = arch::load_global(word);
      }
    }
    std::memcpy(static_cast<void*>(&dst), &words, sizeof(dst));
  }
  KITTENS_DEVICE static void load_shared(lane_run<T, N>& dst, const T* src) {
    word_type words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      words[i] = arch::load_shared(reinterpret_cast<const word_type*>(src) + i);
    }
    std::memcpy(static_cast<void*>(&dst), &words, sizeof(dst));
  }
  KITTENS_DEVICE static void store_shared(T* dst, const lane_run<T, N>& src) {
    word_type words[kWords];
    std::memcpy(&words, &src, sizeof(src));
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      arch::store_shared(reinterpret_cast<word_type*>(dst) + i, words[i]);
    }
  }
  KITTENS_DEVICE static void load_async(T* dst, const T* src, bool inside) {
    static_assert(kBytes >= 4, "an asynchronous copy moves 4, 8 or 16 bytes");
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      arch::cp_async<kBytes>(dst + i * kBytes / int(sizeof(T)), src + i * kBytes / int(sizeof(T)),
                             inside);
    }
  }
  // To global memory, where `inside`.
  KITTENS_DEVICE static void store(T* dst, const lane_run<T, N>& src, bool inside = true) {
    word_type words[kWords];
    std::memcpy(&words, &src, sizeof(src));
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      arch::store_global(reinterpret_cast<word_type*>(dst) + i, words[i], inside);
    }
  }
};

// A run as its single elements, and back; no bit changes.
template <class T, int N>
KITTENS_DEVICE void split(lane_run<T, 1> (&dst)[N], const lane_run<T, N>& src) {
  static_assert(sizeof(dst) == sizeof(src));
  std::memcpy(static_cast<void*>(&dst), &src, sizeof(src));
}
template <class T, int N>
KITTENS_DEVICE void join(lane_run<T, N>& dst, const lane_run<T, 1> (&src)[N]) {
  static_assert(sizeof(dst) == sizeof(src));
  std::memcpy(static_cast<void*>(&dst), &src, sizeof(src));
}

// A run that starts at any element is read as the aligned pieces of 8 bytes in which it lies (of as
// many as the run has, where those are fewer): one more than it is long. Larger pieces take more
// registers and more selections, smaller ones more loads.
template <class T, int N>
struct run_pieces {
  static constexpr int kBytes = N * int(sizeof(T));
  static constexpr int kPieceBytes = kBytes < 8 ? kBytes : 8;
  static constexpr int kPiece = kPieceBytes / int(sizeof(T));  // elements
  static constexpr int kPieces = N / kPiece + 1;
  using piece = lane_run<T, kPiece>;

  // Zero where not `inside`. With L2::evict_last: swiglu_backward of halves of 16384 × 4095
  // takes 159.0 µs so, not 162.1 (H200, bf16).
  KITTENS_DEVICE static void load(lane_run<T, N>& dst, const T* src, bool inside) {
    const auto address = reinterpret_cast<uintptr_t>(src);
    const T* aligned = reinterpret_cast<const T*>(address & ~uintptr_t{kPieceBytes - 1});
    const int skipped = static_cast<int>(address & (kPieceBytes - 1)) / int(sizeof(T));
    piece pieces[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const bool wanted = i < kPieces - 1 || skipped != 0;
      using access = run_access<T, kPiece>;
      access::template load</*EvictLast=*/true>(pieces[i], aligned + i * kPiece, inside && wanted);
    }
    take(dst, pieces, skipped);
  }

  // dst = what starts `skipped` elements into the pieces. A register's number is a constant, so all
  // words move down by powers of two, or stay.
  KITTENS_DEVICE static void take(lane_run<T, N>& dst, const piece (&pieces)[kPieces],
                                  int skipped) {
    constexpr int kPerWord = 4 / int(sizeof(T)), kWords = kPieces * kPieceBytes / 4;
    uint32_t words[kWords];
    static_assert(sizeof(words) == sizeof(pieces));
    std::memcpy(&words, &pieces, sizeof(pieces));
#pragma unroll
    for (int step = kPieceBytes / 8; step > 0; step /= 2) {
      const bool moves = (skipped / kPerWord & step) != 0;
#pragma unroll
      for (int i = 0; i < kWords - step; ++i) words[i] = moves ? words[i + step] : words[i];
    }
    if constexpr (kPerWord == 2) {
#pragma unroll
      for (int i = 0; i < kBytes / 4; ++i) {
        const uint64_t both = uint64_t{words[i + 1]} << 32 | words[i];
        words[i] = static_cast<uint32_t>(both >> (skipped % 2 * 16));
      }
    }
    std::memcpy(static_cast<void*>(&dst), &words, sizeof(dst));
  }
};

// A single element is its own piece.
template <class T>
struct run_pieces<T, 1> : run_access<T, 1> {
  static constexpr int kPiece = 1;
};

}  // namespace kittens::detail
