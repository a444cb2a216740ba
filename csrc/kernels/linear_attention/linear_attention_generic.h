// linear attention: what the host and the generic kernel agree on. No torch, no device code.
#pragma once

#include <cstdint>

namespace thunderkittens {

// Blocks that a multiprocessor holds, of the kernel that computes outputs and of the one that finds
// the states of parts; each has 64 columns of v. Registers say so. (The least shared memory that an
// architecture has, 100 KiB, holds 3 and 2 of the first.)
constexpr int linear_attention_generic_blocks(int64_t keys, bool outputs) {
  return (keys <= 64 ? 4 : 2) + (outputs ? 0 : 1);
}

}  // namespace thunderkittens
