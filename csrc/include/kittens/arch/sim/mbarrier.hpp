// arch/mbarrier.cuh in the simulator.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/mbarrier.cuh"
#include "sim/bulk_api.hpp"

namespace kittens::arch {

inline constexpr bool kHasMbarriers = true;

KITTENS_DEVICE void mbarrier_init(mbarrier* b, int arrivals, KITTENS_CALL_SITE) {
  sim::mbarrier_init(b, arrivals, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void fence_mbarrier_init() { sim::fence_mbarrier_init(); }

KITTENS_DEVICE void mbarrier_invalidate(mbarrier* b, KITTENS_CALL_SITE) {
  sim::mbarrier_invalidate(b, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void mbarrier_arrive(mbarrier* b, int count = 1, KITTENS_CALL_SITE) {
  sim::mbarrier_arrive(b, count, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void mbarrier_expect_bytes(mbarrier* b, int bytes, KITTENS_CALL_SITE) {
  sim::mbarrier_expect_bytes(b, bytes, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void mbarrier_arrive_expect_bytes(mbarrier* b, int bytes, KITTENS_CALL_SITE) {
  sim::mbarrier_arrive_expect_bytes(b, bytes, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE void mbarrier_arrive_remote(mbarrier* b, int block_rank, int count = 1,
                                           KITTENS_CALL_SITE) {
  sim::mbarrier_arrive_remote(b, block_rank, count, site);
  sim::stay_on_stack();
}

KITTENS_DEVICE bool mbarrier_test(mbarrier* b, uint32_t parity, KITTENS_CALL_SITE) {
  return sim::mbarrier_test(b, parity, site);
}

KITTENS_DEVICE void mbarrier_wait(mbarrier* b, uint32_t parity, KITTENS_CALL_SITE) {
  sim::mbarrier_wait(b, parity, site);
  sim::stay_on_stack();
}

}  // namespace kittens::arch
