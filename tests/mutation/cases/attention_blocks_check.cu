// The blocks of keys that some rows see, and those of them that may be done fast, against what each
// row by itself says: for all lengths and windows at the edges of blocks and tiles.
#include <algorithm>
#include <iterator>
#include <string>

#include "attention_blocks.h"
#include "harness.h"

using kittens::testing::fail;

namespace {

constexpr int kAll = 1 << 10;  // keys to a side

// Blocks are read as far as some row sees. One is fast where all rows see all its keys, and each
// has seen a key behind it: no more than those would be right, and no fewer as quick as it can be.
// The same holds for the halves of the blocks at the ends.
blocks wanted(int N, bool fast, const shape& of, int row, int count) {
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
  for (int b = last; fast && b >= first; --b) {
    if (b * N < last_start || (b + 1) * N >= first_end) continue;
    if (found.end_fast == found.first_fast) found.end_fast = b + 1;
    found.first_fast = b;
  }
  return found;
}

std::string text(const blocks& b) {
  return "[" + std::to_string(b.first) + ", " + std::to_string(b.end) + ") fast [" +
         std::to_string(b.first_fast) + ", " + std::to_string(b.end_fast) + ")" +
         (b.low_half ? " low half" : "") + (b.high_half ? " high half" : "");
}

bool same(const blocks& got, const blocks& want) {
  if (want.first == want.end) return got.first == got.end && got.first_fast == got.end_fast;
  if (got.first != want.first || got.end != want.end) return false;
  if (got.low_half != want.low_half || got.high_half != want.high_half) return false;
  if (want.first_fast == want.end_fast) {  // wherever that is, but not below the blocks
    return got.first_fast == got.end_fast && got.end_fast >= got.first;
  }
  return got.first_fast == want.first_fast && got.end_fast == want.end_fast;
}

void check(bool fast, const shape& of, int row, int count) {
  const blocks got = blocks_of(fast, of, row, count);
  const blocks want = wanted(keys_of_a_block(fast), fast, of, row, count);
  if (same(got, want)) return;
  fail("blocks", row,
       std::to_string(of.rows) + " rows, " + std::to_string(of.keys) + " keys, window " +
           std::to_string(of.left) + ", " + std::to_string(of.right) + ": " + text(got) + ", not " +
           text(want));
}

void check_all(bool fast) {
  const int N = keys_of_a_block(fast);
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
            for (int row = 0; row < rows + 2 * count; row += count) check(fast, of, row, count);
          }
        }
      }
    }
  }
}

}  // namespace

TEST(blocks_are_as_each_row_says) { check_all(true); }
TEST(blocks_without_fast_ones) { check_all(false); }
