#include "shards.h"

#include <algorithm>

namespace gpt2 {

shards::shards(const parameters& p, const std::vector<int64_t>& first_of_layer, int ranks,
               int rank) {
  constexpr int64_t kAligned = 8;  // elements of 16 bytes and more
  const int64_t unit = kAligned * ranks;
  const auto down = [&](int64_t offset) { return offset / unit * unit; };
  const auto up = [&](int64_t offset) { return down(offset + unit - 1); };
  total = up(p.total);
  // What two buckets share is in the one whose gradients are there last: layers end with the first
  // elements of the next, the first begins with the last of the embedding, the vectors with the
  // last of the last layer.
  std::vector<int64_t> bounds{0};
  if (ranks > 1) {
    const int64_t vectors_begin = down(p.matrices);
    for (const int64_t first : first_of_layer) {
      const bool is_first_layer = bounds.size() == 1;
      bounds.push_back(std::min(is_first_layer ? down(first) : up(first), vectors_begin));
    }
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

int64_t shards::largest_part() const {
  int64_t largest = 0;
  for (const bucket& b : buckets) largest = std::max(largest, b.part);
  return largest;
}

}  // namespace gpt2
