// arch/shuffle.cuh in the simulator.
#pragma once

#include <cstdint>
#include <cstring>

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/shuffle.cuh"
#include "sim/api.hpp"

namespace kittens::arch {
namespace detail {

template <shufflable T>
KITTENS_DEVICE T shuffle_from(const char* name, T v, int lane, sim::call_site site) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof(T));
  bits = sim::shuffle(name, bits, lane, site);
  std::memcpy(static_cast<void*>(&v), &bits, sizeof(T));
  return v;
}

}  // namespace detail

template <shufflable T>
KITTENS_DEVICE T shuffle(T v, int lane, KITTENS_CALL_SITE) {
  return detail::shuffle_from("shuffle", v, lane & 31, site);
}

template <shufflable T>
KITTENS_DEVICE T shuffle_xor(T v, int mask, KITTENS_CALL_SITE) {
  return detail::shuffle_from("shuffle_xor", v, (lane_id() ^ mask) & 31, site);
}

template <shufflable T>
KITTENS_DEVICE T shuffle_down(T v, int delta, KITTENS_CALL_SITE) {
  const int lane = lane_id() + delta;
  return detail::shuffle_from("shuffle_down", v, lane < kWarpThreads ? lane : lane_id(), site);
}

template <shufflable T>
KITTENS_DEVICE T shuffle_up(T v, int delta, KITTENS_CALL_SITE) {
  const int lane = lane_id() - delta;
  return detail::shuffle_from("shuffle_up", v, lane >= 0 ? lane : lane_id(), site);
}

KITTENS_DEVICE bool vote_any(bool p, KITTENS_CALL_SITE) {
  return sim::ballot("vote_any", p, site) != 0;
}
KITTENS_DEVICE bool vote_all(bool p, KITTENS_CALL_SITE) {
  return sim::ballot("vote_all", p, site) == kAllLanes;
}
KITTENS_DEVICE unsigned ballot(bool p, KITTENS_CALL_SITE) { return sim::ballot("ballot", p, site); }

}  // namespace kittens::arch
