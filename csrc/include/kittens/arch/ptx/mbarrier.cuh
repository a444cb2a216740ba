// arch/mbarrier.cuh on the device. PTX ISA, Parallel Synchronization and Communication
// Instructions: mbarrier. Arrivals release and waits acquire, at the scope of the block.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/mbarrier.cuh"
#include "kittens/arch/shared.cuh"

namespace kittens::arch {

// What is compiled for is known to the host's code as well, but only as a list, lowest first.
inline constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
inline constexpr bool kHasMbarriers = kArchitectures[0] >= 900;

KITTENS_DEVICE void mbarrier_init(mbarrier* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals)
               : "memory");
}

// PTX ISA, membar / fence: .mbarrier_init orders the inits before this thread's later release, as
// the cluster and the asynchronous proxy see them.
KITTENS_DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

KITTENS_DEVICE void mbarrier_invalidate(mbarrier* b) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}

KITTENS_DEVICE void mbarrier_arrive(mbarrier* b, int count = 1) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(count)
               : "memory");
}

KITTENS_DEVICE void mbarrier_expect_bytes(mbarrier* b, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)),
               "r"(bytes)
               : "memory");
}

KITTENS_DEVICE void mbarrier_arrive_expect_bytes(mbarrier* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
               "r"(bytes)
               : "memory");
}

// mapa (Data Movement and Conversion Instructions) finds the other block's address. Not
// .release.cluster: that would wait for this thread's writes to reach the whole device
// (MEMBAR.GPU), and there are none for the other block to see.
KITTENS_DEVICE void mbarrier_arrive_remote(mbarrier* b, int block_rank, int count = 1) {
  asm volatile(
      "{\n"
      "  .reg .b32 remote;\n"
      "  mapa.shared::cluster.u32 remote, %0, %1;\n"
      "  mbarrier.arrive.shared::cluster.b64 _, [remote], %2;\n"
      "}" ::"r"(shared_address(b)),
      "r"(block_rank), "r"(count)
      : "memory");
}

KITTENS_DEVICE bool mbarrier_test(mbarrier* b, uint32_t parity) {
  uint32_t over;
  asm volatile(
      "{\n"
      "  .reg .pred over;\n"
      "  mbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n"
      "  selp.u32 %0, 1, 0, over;\n"
      "}"
      : "=r"(over)
      : "r"(shared_address(b)), "r"(parity)
      : "memory");
  return over != 0;
}

// try_wait sleeps in the hardware until the phase is over or a time limit has passed; the loop's
// labels are the asm statement's own (%=). Not .acquire.cluster: that would invalidate the
// first-level cache after each wait (CCTL.IVALL).
KITTENS_DEVICE void mbarrier_wait(mbarrier* b, uint32_t parity) {
  asm volatile(
      "{\n"
      "  .reg .pred over;\n"
      "  kittens_wait_%=:\n"
      "  mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "  @!over bra kittens_wait_%=;\n"
      "}" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}

}  // namespace kittens::arch
