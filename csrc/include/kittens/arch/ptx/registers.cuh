// arch/registers.cuh on the device. PTX ISA, Miscellaneous Instructions: setmaxnreg.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/registers.cuh"

namespace kittens::arch {

template <int N>
KITTENS_DEVICE void raise_registers() {
  static_assert(is_register_count<N>, "raise_registers takes a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
KITTENS_DEVICE void lower_registers() {
  static_assert(is_register_count<N>, "lower_registers takes a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

}  // namespace kittens::arch
