// The part of the attention kernel that the mutants of attention_tile.cuh change most.
#include "attention_blocks.h"

#include "kernels/attention/attention_tile.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;

namespace {

using fixed_config = attention_forward_config<bf16, 64, false, true>;
using online_config = attention_forward_config<bf16, 192, false, true>;

template <class Config>
blocks find(const shape& of, int row, int count) {
  attention_arguments p{};
  p.left = of.left;
  p.right = of.right;
  const attention_tile tile{0, 0, 0, 0, 0, of.rows, of.keys};
  const key_blocks b = key_blocks::of<Config>(p, tile, row, count);
  return {b.first, b.end, b.first_fixed, b.end_fixed, b.low_half, b.high_half};
}

}  // namespace

blocks blocks_of(bool fixed, const shape& of, int row, int count) {
  return fixed ? find<fixed_config>(of, row, count) : find<online_config>(of, row, count);
}

int keys_of_a_block(bool fixed) { return fixed ? fixed_config::keys : online_config::keys; }
