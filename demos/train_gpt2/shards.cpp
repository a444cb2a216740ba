#include "shards.h"

#include <algorithm>

namespace gpt2 {

shards::shards(const parameters& p, const std::vector<int64_t>& first_of_layer, int ranks,
               int rank) {
  constexpr int64_t kAligned = 8;  // elements of 16 bytes and more
  const int64_t unit = kAligned * ranks;
  const auto up = [&](int64_t offset) { return (offset + unit - 1) / unit * unit; };
  total = up(p.total);
  // A bucket ends with the first elements of the next, whose gradients are there before its own,
  // but for the vectors', which are there last.
  std::vector<int64_t> bounds{0};
  if (ranks > 1) {
    const int64_t vectors_begin = p.matrices / unit * unit;
    for (const int64_t first : first_of_layer) bounds.push_back(std::min(up(first), vectors_begin));
    bounds.push_back(vectors_begin);
  }
  bounds.push_back(total);
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    const bucket b{bounds[i], (bounds[i + 1] - bounds[i]) / ranks};
    buckets.push_back(b);
    const int64_t from = b.offset + rank * b.part, to = from + b.part;
    const int64_t border = std::clamp(p.matrices, from, to);
    if (border > from) matrices.push_back({from, border - from, state});
    if (to > border) vectors.push_back({border, to - border, state + border - from});
    state += b.part;
  }
}

}  // namespace gpt2
