// The part of the attention kernel that the mutants of attention_tile.cuh change most.
#include "attention_blocks.h"

#include "kernels/attention/attention_tile.cuh"

using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;

namespace {

using fast_config = attention_forward_config<bf16, 64, false, true>;
using careful_config = attention_forward_config<bf16, 192, false, true>;

template <class Config>
blocks find(const shape& of, int row, int count) {
  attention_forward_tensors<Config> p{};
  p.left = of.left;
  p.right = of.right;
  const attention_tile tile{0, 0, 0, 0, 0, of.rows, of.keys};
  const key_blocks b = key_blocks::of(p, tile, row, count);
  return {b.first, b.end, b.first_fast, b.end_fast, b.low_half, b.high_half};
}

}  // namespace

blocks blocks_of(bool fast, const shape& of, int row, int count) {
  return fast ? find<fast_config>(of, row, count) : find<careful_config>(of, row, count);
}

int keys_of_a_block(bool fast) { return fast ? fast_config::keys : careful_config::keys; }
