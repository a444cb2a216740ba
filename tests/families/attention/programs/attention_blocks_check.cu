// The blocks of keys that some rows see, and those of them that may be done with a fixed reference,
// against what each row by itself says: for all lengths and windows at the edges of blocks and
// tiles.
#include <algorithm>
#include <iterator>
#include <string>

#include "attention_blocks.h"
#include "harness.h"

using kittens::testing::fail;

namespace {

constexpr int kAll = 1 << 10;  // keys to a side

// Blocks are read as far as some row sees. One may be done with a fixed reference where all
// rows see all its keys, and each has seen a key behind it: no more than those would be right, and
// no fewer as quick as it can be. The same holds for the halves of the blocks at the ends.
blocks wanted(int N, bool fixed, const shape& of, int row, int count) {
  const int rows_end = std::min(row + count, of.rows);
  int start = of.keys, end = 0, last_start = 0, first_end = of.keys;
  for (int i = row; i < rows_end; ++i) {
    const int diagonal = i + of.keys - of.rows;
    const int from = std::max(0, diagonal - of.left);
    const int to = std::max(0, std::min(of.keys, diagonal + of.right + 1));
    last_start = std::max(last_start, from);
    first_end = std::min(first_end, to);
    if (from >= to) continue;
    start = std::min(start, from);
    end = std::max(end, to);
  }
  if (start >= end) return {};
  const int first = start / N, last = (end - 1) / N;
  const bool low_half = end <= last * N + N / 2, high_half = start >= first * N + N / 2;
  blocks found{first, last + 1, first, first, low_half, high_half};
  for (int b = last; fixed && b >= first; --b) {
    if (b * N < last_start || (b + 1) * N >= first_end) continue;
    if (found.end_fixed == found.first_fixed) found.end_fixed = b + 1;
    found.first_fixed = b;
  }
  return found;
}

std::string text(const blocks& b) {
  return "[" + std::to_string(b.first) + ", " + std::to_string(b.end) + ") fixed [" +
         std::to_string(b.first_fixed) + ", " + std::to_string(b.end_fixed) + ")" +
         (b.low_half ? " low half" : "") + (b.high_half ? " high half" : "");
}

bool same(const blocks& got, const blocks& want) {
  if (want.first == want.end) return got.first == got.end && got.first_fixed == got.end_fixed;
  if (got.first != want.first || got.end != want.end) return false;
  if (got.low_half != want.low_half || got.high_half != want.high_half) return false;
  if (want.first_fixed == want.end_fixed) {  // wherever that is, but not below the blocks
    return got.first_fixed == got.end_fixed && got.end_fixed >= got.first;
  }
  return got.first_fixed == want.first_fixed && got.end_fixed == want.end_fixed;
}

void check(bool fixed, const shape& of, int row, int count) {
  const blocks got = blocks_of(fixed, of, row, count);
  const blocks want = wanted(keys_of_a_block(fixed), fixed, of, row, count);
  if (same(got, want)) return;
  fail("blocks", row,
       std::to_string(of.rows) + " rows, " + std::to_string(of.keys) + " keys, window " +
           std::to_string(of.left) + ", " + std::to_string(of.right) + ": " + text(got) + ", not " +
           text(want));
}

void check_all(bool fixed) {
  const int N = keys_of_a_block(fixed);
  const int lengths[] = {1, 5, 63, 64, 65, 193, 260};
  const int keys[] = {0, 1, 2, N - 1, N, N + 1, 2 * N, 2 * N + 1, 3 * N - 1, 3 * N, 4 * N};
  const int windows[] = {0, 1, 62, 63, 64, N - 1, N, N + 1, 2 * N, 3 * N - 1, kAll};
  const int counts[] = {64, 192};
  for (int rows : lengths) {
    for (int length : keys) {
      for (int left : windows) {
        for (int right : windows) {
          // As the launch has it.
          const shape of{rows, length, std::min(left, length), std::min(right, rows)};
          for (int count : counts) {
            for (int row = 0; row < rows + 2 * count; row += count) check(fixed, of, row, count);
          }
        }
      }
    }
  }
}

}  // namespace

TEST(blocks_are_as_each_row_says) { check_all(true); }
TEST(blocks_without_fast_ones) { check_all(false); }
