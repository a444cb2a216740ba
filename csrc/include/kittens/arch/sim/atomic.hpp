// arch/atomic.cuh in the simulator: host atomics, because blocks run on several cores. Their orders
// are those of the contract, which race mode goes by.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "kittens/arch/atomic.cuh"
#include "kittens/arch/keywords.cuh"
#include "kittens/arch/sim/math.hpp"
#include "sim/api.hpp"

namespace kittens::arch {
namespace detail {

inline constexpr auto kRelaxed = std::memory_order_relaxed;

template <class T>
KITTENS_DEVICE std::atomic_ref<T> atomic_at(const char* name, T* p, sim::call_site site) {
  sim::check_address(name, p, sizeof(T), true, site);
  return std::atomic_ref<T>(*p);
}

}  // namespace detail

KITTENS_DEVICE float atomic_add(float* p, float v, KITTENS_CALL_SITE) {
  const auto word = detail::atomic_at("atomic_add", p, site);
  if (sim::is_shared(p)) return word.fetch_add(v, detail::kRelaxed);
  float old = word.load(detail::kRelaxed);
  while (!word.compare_exchange_weak(old, detail::flush(detail::flush(old) + detail::flush(v)),
                                     detail::kRelaxed)) {
  }
  return old;
}

template <atomic_word T>
KITTENS_DEVICE T atomic_add(T* p, std::type_identity_t<T> v, KITTENS_CALL_SITE) {
  return detail::atomic_at("atomic_add", p, site).fetch_add(v, detail::kRelaxed);
}

template <atomic_word T>
  requires(sizeof(T) == 4)
KITTENS_DEVICE T atomic_max(T* p, std::type_identity_t<T> v, KITTENS_CALL_SITE) {
  const auto word = detail::atomic_at("atomic_max", p, site);
  T old = word.load(detail::kRelaxed);
  while (old < v && !word.compare_exchange_weak(old, v, detail::kRelaxed)) {
  }
  return old;
}

template <atomic_word T>
  requires(sizeof(T) == 4)
KITTENS_DEVICE T atomic_min(T* p, std::type_identity_t<T> v, KITTENS_CALL_SITE) {
  const auto word = detail::atomic_at("atomic_min", p, site);
  T old = word.load(detail::kRelaxed);
  while (old > v && !word.compare_exchange_weak(old, v, detail::kRelaxed)) {
  }
  return old;
}

// What a thread may spin on lets the others run: a lock's holder may be one of them.
template <atomic_word T>
KITTENS_DEVICE T atomic_exchange(T* p, std::type_identity_t<T> v, KITTENS_CALL_SITE) {
  const auto word = detail::atomic_at("atomic_exchange", p, site);
  sim::spin(site);
  return word.exchange(v, detail::kRelaxed);
}

template <atomic_word T>
KITTENS_DEVICE T atomic_cas(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v,
                            KITTENS_CALL_SITE) {
  const auto word = detail::atomic_at("atomic_cas", p, site);
  sim::spin(site);
  word.compare_exchange_strong(expected, v, detail::kRelaxed);
  return expected;
}

template <atomic_word T>
KITTENS_DEVICE T load_acquire(const T* p, KITTENS_CALL_SITE) {
  const auto word = detail::atomic_at("load_acquire", const_cast<T*>(p), site);
  sim::spin(site);
  return word.load(std::memory_order_acquire);
}

template <atomic_word T>
KITTENS_DEVICE void store_release(T* p, std::type_identity_t<T> v, KITTENS_CALL_SITE) {
  detail::atomic_at("store_release", p, site).store(v, std::memory_order_release);
}

KITTENS_DEVICE void fence_block() { sim::fence_memory(); }
KITTENS_DEVICE void fence_device() { sim::fence_memory(); }

}  // namespace kittens::arch
