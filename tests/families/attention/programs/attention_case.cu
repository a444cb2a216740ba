// Small calls of the attention kernel against a reference in double, as a program of its own: the
// tests of planted mistakes (test_attention_mistakes.py) compile it with a kernel that they have
// changed.
//
// 8 tiles for 4 blocks, in a dynamic schedule or a static one of two a block. In each head, or in
// all but some, a row overflows its fixed reference, so that its tile is done again, and another
// grows enough to be rescaled. Without these two rows, the others' bits must be the same.
#include <algorithm>
#include <random>

#include "harness.h"
#include "kernels/attention/attention_launch.cuh"

using kittens::testing::buffer;
using namespace thunderkittens;
using namespace thunderkittens::attention_kernels;

namespace {

constexpr int kRows = 200, kKeys = 800, kHeads = 4, kKeyHeads = 2, kHeadDim = 64;
constexpr float kScale = 0.125f;
constexpr int kOverflows = 42, kGrows = 74;  // rows

// Which keys are seen, and whether lse is wanted and the schedule is dynamic.
struct call {
  int keys, left, right;
  int their_key;  // at which the two rows are aimed
  bool lse, dynamic;
  int calm_heads = 0;  // in which no row overflows
  // Where the keys that exist begin and end, if not all of them do: leftpad_k and seqused_k.
  int from = 0, to = kKeys;
  bool bounded() const { return from > 0 || to < kKeys; }
};

std::vector<bf16> random_values(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<bf16> values(n);
  for (bf16& value : values) value = kittens::convert<bf16>(normal(generator));
  return values;
}

// Where a row of a head begins in [1, length, heads, kHeadDim].
size_t index_of(int row, int head, int heads) {
  return (static_cast<size_t>(row) * heads + head) * kHeadDim;
}

struct tensor {
  std::vector<bf16> values;
  int heads;
  size_t index(int row, int head) const { return index_of(row, head, heads); }
  double at(int row, int head, int d) const {
    return kittens::convert<float>(values[index(row, head) + d]);
  }
  std::vector<double> numbers() const {
    std::vector<double> all;
    for (const bf16 value : values) all.push_back(kittens::convert<float>(value));
    return all;
  }
  attention_strides strides() const {
    return {static_cast<int64_t>(values.size()), int64_t{heads} * kHeadDim, kHeadDim};
  }
};

// q, k and v.
struct operands {
  std::vector<double> q, k, v;
};

struct outputs {
  tensor o;
  std::vector<float> lse;
};

// A query `factor` times its key: its score is 8 · factor, others' are below 4 · factor.
void aim(tensor& q, const tensor& k, int key, int row, int head, float factor) {
  for (int d = 0; d < kHeadDim; ++d) {
    const auto value = static_cast<float>(k.at(key, head / (kHeads / kKeyHeads), d));
    q.values[q.index(row, head) + d] = kittens::convert<bf16>(factor * value);
  }
}

// One counter for all the calls: each leaves it as it must have been.
const buffer<int>& tile_counter() {
  static const buffer<int> counter(std::vector<int>{0});
  return counter;
}

outputs run(const call& c, const tensor& queries, const tensor& keys, const tensor& values) {
  const buffer<bf16> q(queries.values), k(keys.values), v(values.values), o(queries.values.size());
  const buffer<float> lse(kHeads * kRows);
  const buffer<int> from(std::vector<int>{c.from}), to(std::vector<int>{c.to});
  const auto launch =
      c.lse ? launch_attention_forward<attention_forward_config<bf16, kHeadDim, false, true>>
            : launch_attention_forward<attention_forward_config<bf16, kHeadDim, false, false>>;
  launch({.q = q.data(),
          .k = k.data(),
          .v = v.data(),
          .o = o.data(),
          .lse = c.lse ? lse.data() : nullptr,
          .sinks = nullptr,
          .tile_counter = c.dynamic ? tile_counter().data() : nullptr,
          .seqused_k = c.bounded() ? to.data() : nullptr,
          .leftpad_k = c.bounded() ? from.data() : nullptr,
          .batch = 1,
          .rows = kRows,
          .keys = c.keys,
          .heads = kHeads,
          .key_heads = kKeyHeads,
          .head_dim = kHeadDim,
          .value_dim = kHeadDim,
          .q_strides = queries.strides(),
          .k_strides = keys.strides(),
          .v_strides = values.strides(),
          .scale = kScale,
          .softcap = 0,
          .left = c.left,
          .right = c.right,
          .type = dtype::bfloat16},
         nullptr);
  CHECK_EQUAL(tile_counter().get()[0], 0);
  return {{o.get(), kHeads}, lse.get()};
}

// NaN is larger than all.
double larger(double x, double y) { return x >= y || std::isnan(x) ? x : y; }

// The largest difference of a row's outputs from the formula, where 1 is half a unit in the last
// place. Compiled as the kernel is, it was half of the program's time: so plain loops over arrays,
// of which race mode is told nothing.
__attribute__((no_sanitize("thread"))) double error_of(const call& c, int row, int head,
                                                       const operands& of, const outputs& got) {
  const int last = std::min(c.keys, c.to);
  const int key_head = head / (kHeads / kKeyHeads), diagonal = row + last - kRows;
  const int first = std::max(c.from, diagonal - c.left),
            end = std::min(last, diagonal + c.right + 1);
  const double* const query = &of.q[index_of(row, head, kHeads)];
  std::vector<double> p, want(kHeadDim);
  double top = -INFINITY, sum = 0;
  for (int j = first; j < end; ++j) {
    const double* const key = &of.k[index_of(j, key_head, kKeyHeads)];
    double score = 0;
    for (int d = 0; d < kHeadDim; ++d) score += query[d] * key[d];
    p.push_back(score * kScale);
    top = std::max(top, p.back());
  }
  for (double& x : p) sum += x = std::exp(x - top);
  for (int j = first; j < end; ++j) {
    const double* const value = &of.v[index_of(j, key_head, kKeyHeads)];
    const double weight = p[j - first] / sum;
    double* const sums = want.data();
    for (int d = 0; d < kHeadDim; ++d) sums[d] += weight * value[d];
  }
  const double lse = c.lse ? got.lse[static_cast<size_t>(head) * kRows + row] : 0;
  double worst = c.lse ? std::fabs(top + std::log(sum) - lse) * 0x1p9 : 0;
  for (int d = 0; d < kHeadDim; ++d) {
    // Numbers in [0.5, 1) have a half of 2⁻⁹.
    const double half = 0x1p-9 * std::max(1.0, 2 * std::fabs(want[d]));
    worst = larger(worst, std::fabs(want[d] - got.o.at(row, head, d)) / half);
  }
  return worst;
}

void check(const call& c) {
  tensor k{random_values(size_t(c.keys) * kKeyHeads * kHeadDim, 2), kKeyHeads};
  tensor v{random_values(size_t(c.keys) * kKeyHeads * kHeadDim, 3), kKeyHeads};
  for (int j = 0; j < c.keys; ++j) {
    if (j >= c.from && j < c.to) continue;
    const auto nan = kittens::convert<bf16>(NAN);
    for (tensor* t : {&k, &v}) std::fill_n(&t->values[t->index(j, 0)], kKeyHeads * kHeadDim, nan);
  }
  const tensor tame{random_values(kRows * kHeads * kHeadDim, 1), kHeads};
  tensor q = tame;
  for (int head = 0; head < kHeads; ++head) {
    if (head >= c.calm_heads) aim(q, k, c.their_key, kOverflows, head, 40);
    aim(q, k, c.their_key, kGrows, head, 15);
  }
  const outputs got = run(c, q, k, v), without = run(c, tame, k, v);
  const operands of{q.numbers(), k.numbers(), v.numbers()};
  double worst = 0;
  int changed = 0;
  for (int head = 0; head < kHeads; ++head) {
    for (int row = 0; row < kRows; ++row) {
      worst = larger(worst, error_of(c, row, head, of, got));
      if (row == kOverflows || row == kGrows) continue;
      const size_t at = static_cast<size_t>(head) * kRows + row;
      bool same = !c.lse || got.lse[at] == without.lse[at];
      for (int d = 0; d < kHeadDim; ++d) {
        same = same && got.o.at(row, head, d) == without.o.at(row, head, d);
      }
      changed += !same;
    }
  }
  CHECK_CLOSE(worst, 0.0, 2.0);  // the rounding of o, and as much for that of p
  CHECK_EQUAL(changed, 0);       // rows that their neighbours changed
}

}  // namespace

// So short that the store of a tile is under way when it is done again; and so quick that it comes
// first: most mistakes end the program here.
TEST(tiles_of_two_blocks) {
  check({.keys = 256, .left = 256, .right = kRows, .their_key = 5, .lse = true, .dynamic = false});
}
// So short that the producer is two tiles ahead at once, and a consumer one ahead of another.
TEST(tiles_of_one_block) {
  check({.keys = 100, .left = 100, .right = kRows, .their_key = 5, .lse = true, .dynamic = true});
}
// A block's last tile overflows, and the one before it does not.
TEST(all_of_the_keys_without_lse) {
  check({.keys = 600,
         .left = 600,
         .right = kRows,
         .their_key = 500,
         .lse = false,
         .dynamic = false,
         .calm_heads = 1});
}
// Consumers skip blocks at both ends.
TEST(windows_of_a_dynamic_schedule) {
  check({.keys = kKeys, .left = 500, .right = 0, .their_key = 500, .lse = true, .dynamic = true});
}
// Keys to both sides that are NaN, of no whole block.
TEST(keys_with_bounds) {
  check({.keys = kKeys,
         .left = 500,
         .right = 0,
         .their_key = 500,
         .lse = true,
         .dynamic = true,
         .from = 150,
         .to = 700});
}
// All of them where keys are few: more would let the numbers of tiles leave an int.
TEST(heads_go_together_while_their_keys_fit_the_cache) {
  int counter = 0;
  attention_forward_params p{.tile_counter = &counter,
                             .batch = 3,
                             .rows = 9'000'000,
                             .keys = 1,
                             .heads = 4,
                             .key_heads = 2,
                             .head_dim = 8,
                             .value_dim = 8,
                             .type = dtype::bfloat16};
  CHECK_EQUAL(heads_together(p), 12);
  p.keys = 1 << 20;
  CHECK_EQUAL(heads_together(p), 2);
  p.tile_counter = nullptr;
  CHECK_EQUAL(heads_together(p), 1);
}
