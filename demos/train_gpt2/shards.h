// Who updates which parameters. They are cut into buckets, whose gradients are there at different
// times of a backward, and each rank has an equal part of each bucket: so of the optimizer's state
// it needs its share alone (ZeRO's first stage), and all ranks always have the same to exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parameters.h"
#include "thunderkittens/kernels/common.h"

namespace gpt2 {

// In elements of the parameters' allocation.
struct bucket {
  int64_t offset, part;  // part: a rank's; a bucket has one for each

  void* in(void* all, thunderkittens::dtype type) const { return part_in(all, type, 0); }
  void* part_in(void* all, thunderkittens::dtype type, int rank) const {
    return static_cast<std::byte*>(all) + (offset + rank * part) * kittens::host::bytes_of(type);
  }
};

// What this rank updates, at once: its state lies from `state` on in the state's allocations.
struct piece {
  int64_t offset, size, state;
};

struct shards {
  // first_of_layer: where each layer's matrices begin.
  shards(const parameters& p, const std::vector<int64_t>& first_of_layer, int ranks, int rank);

  // The embedding's, one a layer, and that of the vectors. One rank has one, of all.
  std::vector<bucket> buckets;
  int64_t total;  // of the allocation, whose end is padded: parts are equal, and of whole 16 bytes
  std::vector<piece> matrices, vectors;
  int64_t state = 0;  // elements of all pieces

  int64_t largest_part() const;
  size_t of_embedding() const { return 0; }
  size_t of_layer(size_t layer) const { return 1 + layer; }
  size_t of_vectors() const { return buckets.size() - 1; }
  std::vector<piece> pieces() const {
    std::vector<piece> all = matrices;
    all.insert(all.end(), vectors.begin(), vectors.end());
    return all;
  }
};

}  // namespace gpt2
