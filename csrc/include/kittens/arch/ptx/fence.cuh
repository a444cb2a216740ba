// arch/fence.cuh on the device. PTX ISA, Parallel Synchronization and Communication Instructions:
// membar / fence (fence.proxy.async).
#pragma once

#include "kittens/arch/keywords.cuh"

namespace kittens::arch {

KITTENS_DEVICE void fence_async_proxy() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

KITTENS_DEVICE void fence_async_proxy_global() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

}  // namespace kittens::arch
