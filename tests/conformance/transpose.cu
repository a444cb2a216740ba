// movmatrix: an 8 × 8 matrix of 16-bit elements turned round in a warp's registers.
#include "kittens/arch/arch.cuh"
#include "record.h"

namespace {

using namespace kittens;
using namespace kittens::testing;

__global__ void turns_round(uint32_t* out) {
  out[arch::thread_id()] = arch::transpose_matrix(0x10001u * (2 * arch::thread_id()) + 0x10000u);
}

TEST(matrices_in_registers) {
  const buffer<uint32_t> out(32);
  run(turns_round, {.grid = {1}, .block = {32}}, out.data());
  record("transpose_matrix", out.get());
}

}  // namespace
