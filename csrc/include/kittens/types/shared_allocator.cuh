// shared_allocator: hands out a block's dynamic shared memory, piece after piece. Every thread of
// the block makes the same allocator and the same calls, and so gets the same pieces; nothing is
// initialised, and nothing is given back.
//
//   extern __shared__ alignment_dummy __shm[];      // arch::dynamic_shared() in both worlds
//   tma_allocator al((int*)&__shm[0]);
//   auto& q = al.allocate<st_bf<64, 64>>();         // a tile
//   auto& k = al.allocate<st_bf<64, 64>, 2>();      // an array of tiles: k[0], k[1]
#pragma once

#include <cstdint>

#include "kittens/arch/keywords.cuh"

namespace kittens {

// What the dynamic shared memory is declared as, so that it begins at a multiple of 1024 bytes:
// where swizzled tiles, TMA and wgmma want theirs.
struct alignas(1024) alignment_dummy {
  int dummy;
};

namespace detail {

// T[N][M]… of T, N, M …; T itself of T alone.
template <class T, int... Lengths>
struct nested_array {
  using type = T;
};
template <class T, int Length, int... Lengths>
struct nested_array<T, Length, Lengths...> {
  static_assert(Length > 0, "an array in shared memory has at least one element");
  using type = typename nested_array<T, Lengths...>::type[Length];
};

}  // namespace detail

// Each piece begins at a multiple of Alignment bytes, and of its type's own alignment.
template <int Alignment = 16>
class shared_allocator {
  static_assert(Alignment > 0 && (Alignment & (Alignment - 1)) == 0,
                "an alignment is a power of two");

 public:
  // `first`: where the memory begins that it hands out.
  KITTENS_DEVICE explicit shared_allocator(void* first) : next_(static_cast<uint8_t*>(first)) {}

  // The next piece: a T&, T(&)[N], T(&)[N][M] …
  template <class T, int... Lengths>
  KITTENS_DEVICE typename detail::nested_array<T, Lengths...>::type& allocate() {
    using piece = typename detail::nested_array<T, Lengths...>::type;
    constexpr uintptr_t kAlignment = alignof(T) > Alignment ? alignof(T) : Alignment;
    // By an offset, for a pointer made from a number would no longer be known to be shared memory.
    next_ += (kAlignment - reinterpret_cast<uintptr_t>(next_) % kAlignment) % kAlignment;
    auto* start = next_;
    next_ += sizeof(piece);
    return *reinterpret_cast<piece*>(start);
  }

 private:
  uint8_t* next_;
};

// For what TMA and wgmma touch: every piece begins at a multiple of 1024 bytes.
using tma_allocator = shared_allocator<1024>;

}  // namespace kittens
