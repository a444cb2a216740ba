// ordered_barrier: N warpgroups go through a section one after the other, in order, again and
// again. Attention's consumers do so at the tensor cores: while one issues its products, the others
// are at their softmax.
//
//   using order = ordered_barrier<2>;
//   order::start(w);                  // w: which of the N warpgroups this is; all of it calls
//   for (…) {
//     order::wait(w);
//     … issue products …
//     order::arrive(w);
//   }
//   order::finish(w);                 // all have been through equally often
//
// A warpgroup's turn is a named barrier, of itself, which waits, and the one before it, which
// arrives when it leaves the section. They are numbers FirstBarrier to FirstBarrier + N − 1 of the
// block's fifteen; a single warpgroup uses none.
#pragma once

#include "kittens/arch/barrier.cuh"
#include "kittens/arch/keywords.cuh"

namespace kittens {

template <int N, int FirstBarrier = 1>
struct ordered_barrier {
  static constexpr int kFirstBarrier = FirstBarrier;
  static constexpr int kBarriers = N == 1 ? 0 : N;
  static_assert(N >= 1 && FirstBarrier >= 1 && FirstBarrier + kBarriers <= 16,
                "named barriers are numbers 1 to 15");

  // The last one arrives for the first one's first turn.
  KITTENS_DEVICE static void start(int w) {
    if (w == N - 1) arrive(w);
  }
  KITTENS_DEVICE static void wait(int w) {
    if constexpr (N > 1) arch::named_barrier_sync(FirstBarrier + w, kThreads);
  }
  // The next one's turn.
  KITTENS_DEVICE static void arrive(int w) {
    if constexpr (N > 1) {
      arch::named_barrier_arrive(FirstBarrier + (w + 1 == N ? 0 : w + 1), kThreads);
    }
  }
  // The first one takes the turn that is left over. After a barrier of all of them, they may start
  // again.
  KITTENS_DEVICE static void finish(int w) {
    if (w == 0) wait(w);
  }

 private:
  static constexpr int kThreads = 2 * 128;
};

}  // namespace kittens
