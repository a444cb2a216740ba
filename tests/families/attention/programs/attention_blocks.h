// Which blocks of keys some rows of a tile see, as the kernel has it (attention_tile.cuh): a
// program of its own, because it need not run the kernel to try every edge.
#pragma once

struct shape {
  int rows, keys, left, right;  // Sq, Sk, and how far a row sees from its diagonal
};

struct blocks {
  int first, end, first_fixed, end_fixed;
  bool low_half, high_half;
};

// Of `count` rows from `row` on, in a configuration with a fixed reference, or one without.
blocks blocks_of(bool fixed, const shape& of, int row, int count);

int keys_of_a_block(bool fixed);
