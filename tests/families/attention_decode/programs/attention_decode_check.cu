// The kernel of attention_decode against its definition in double.
#include "attention_decode.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <kittens.cuh>
#include <limits>

#include "e4m3.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

constexpr int kWidth = HEAD_DIM;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct problem {
  std::vector<int> lengths;
  int queries, heads, key_heads, capacity;
  int page = 0;  // 0: none
  int left = -1;
  double scale = 0.125, softcap = 0;
  bool sinks = false, e4m3 = false;
  int blocks = 2;
  // Scores grow by 8 · slope a tile of 32 keys for the first half of the heads, and fall as much
  // for the others. Below 0 it is the other way round.
  int slope = 0;
  int exponent = 0;  // of two: queries of at most 3 times that

  int batch() const { return int(lengths.size()); }
  int length(int b) const { return std::min(std::max(lengths[b], 0), capacity); }
  int first(int b) const { return left < 0 ? 0 : std::max(length(b) - queries - left, 0); }
  int columns() const { return page == 0 ? 1 : capacity / page; }
};

// A cache, NaN where no query sees it, and its table, rubbish where no key is needed.
struct caches {
  std::vector<bf16> k, v;
  std::vector<int> table;
  int page_size, pages;

  explicit caches(const problem& is)
      : page_size(is.page == 0 ? is.capacity : is.page), pages(is.batch() * is.columns()) {
    const size_t elements = size_t(pages) * page_size * is.key_heads * kWidth;
    k = normal_values<bf16>(elements, 2);
    v = normal_values<bf16>(elements, 3, /*mean=*/1);  // so that the sum of weights is seen
    if (is.e4m3) round_to_e4m3(k), round_to_e4m3(v);
    // Sequence b's columns are the pages from the last backwards. (Without pages each sequence is
    // its own.)
    for (int i = 0; i < is.batch() * is.columns(); ++i) {
      table.push_back(is.page == 0 ? i : pages - 1 - i);
    }
    std::vector<bool> seen(size_t(pages) * page_size);
    for (int b = 0; b < is.batch(); ++b) {
      for (int j = is.first(b); j < is.length(b); ++j) seen[row(is, b, j)] = true;
    }
    const int heads = is.key_heads * kWidth;
    for (size_t i = 0; i < elements; ++i) {
      if (!seen[i / heads]) k[i] = v[i] = kittens::convert<bf16>(kNaN);
    }
    for (int b = 0; b < is.batch() && is.slope != 0; ++b) {
      for (int j = is.first(b); j < is.length(b); ++j) {
        k[size_t(row(is, b, j)) * heads] = kittens::convert<bf16>(std::abs(is.slope) * j / 4.0f);
      }
    }
    for (int b = 0; b < is.batch() && is.page != 0; ++b) {
      for (int c = 0; c < is.columns(); ++c) {
        const bool needed = c >= is.first(b) / page_size && c * page_size < is.length(b);
        if (!needed) table[b * is.columns() + c] = c % 2 == 0 ? -1 : 1 << 30;
      }
    }
  }
  // What is beyond the pages on either side is taken for the first or the last.
  std::vector<int> given_table() const {
    std::vector<int> given = table;
    for (int& entry : given) {
      if (entry == 0) entry = -1;
      if (entry == pages - 1) entry = pages;
    }
    return given;
  }
  // Of all pages.
  int row(const problem& is, int b, int key) const {
    return table[b * is.columns() + key / page_size] * page_size + key % page_size;
  }
  decode_cache sizes(const problem& is) const {
    const int64_t head = kWidth, token = is.key_heads * head;
    const decode_strides strides{page_size * token, token, head};
    return {.pages = pages,
            .page_size = page_size,
            .k_strides = strides,
            .v_strides = strides,
            .paged = is.page != 0,
            .table_width = is.columns(),
            .table_stride = is.columns(),
            .e4m3 = is.e4m3};
  }
};

// One row of the output: query head h of token i.
std::vector<double> attend(const problem& is, const caches& in, const std::vector<double>& q,
                           const std::vector<float>& sinks, const std::vector<float>& scales, int b,
                           int i, int h) {
  const int group = is.heads / is.key_heads, last = is.length(b) - is.queries + i;
  const int first = is.left < 0 ? 0 : std::max(last - is.left, 0);
  const auto at = [&](int key) {
    return (size_t(in.row(is, b, key)) * is.key_heads + h / group) * kWidth;
  };
  const size_t row = ((size_t(b) * is.queries + i) * is.heads + h) * kWidth;
  std::vector<double> scores, o(kWidth);
  for (int key = first; key <= last; ++key) {
    double score = 0;
    for (int c = 0; c < kWidth; ++c) {
      score += q[row + c] * kittens::convert<float>(in.k[at(key) + c]);
    }
    score *= is.scale * scales[h / group];
    if (is.softcap > 0) score = is.softcap * std::tanh(score / is.softcap);
    scores.push_back(score);
  }
  if (scores.empty()) return o;
  double largest = *std::max_element(scores.begin(), scores.end());
  if (is.sinks) largest = std::max(largest, double(sinks[h]));
  double sum = is.sinks ? std::exp(sinks[h] - largest) : 0;
  for (int key = first; key <= last; ++key) {
    const double weight = std::exp(scores[key - first] - largest);
    sum += weight;
    for (int c = 0; c < kWidth; ++c) {
      o[c] += weight * kittens::convert<float>(in.v[at(key) + c]);
    }
  }
  for (double& x : o) x *= scales[is.key_heads + h / group] / sum;
  return o;
}

// By pairs of key heads wherever they are even: attention_decode.cu.
const decode_heads& form_of(const problem& is) {
  return decode_heads_of(kWidth, !is.e4m3 && is.key_heads % 2 == 0, is.e4m3);
}

void check_shared(const problem& is, int share) {
  const size_t rows = size_t(is.batch()) * is.queries * is.heads;
  const caches in(is);
  auto qs = normal_values<bf16>(rows * kWidth, 1);
  for (size_t i = 0; i < rows && is.slope != 0; ++i) {
    const bool in_first_half = int(i % is.heads) < is.heads / 2;
    const float sign = in_first_half == (is.slope > 0) ? 1.0f : -1.0f;
    qs[i * kWidth] = kittens::convert<bf16>(sign / float(is.scale));
  }
  for (size_t i = 0; i < qs.size() && is.exponent != 0; ++i) {
    const float x = std::clamp(kittens::convert<float>(qs[i]), -3.0f, 3.0f);
    qs[i] = kittens::convert<bf16>(std::ldexp(x, is.exponent));
  }
  auto sink_values = normal_values<float>(is.heads, 4);
  for (float& sink : sink_values) sink += 5;                // as much as some hundred keys
  std::vector<float> scale_values(2 * is.key_heads, 1.0f);  // of keys, and of values
  for (size_t i = 0; i < scale_values.size() && is.e4m3; ++i) scale_values[i] = 0.5f + 0.25f * i;
  const buffer<bf16> q(qs), k(in.k), v(in.v), o(rows * kWidth);
  const buffer<uint8_t> narrow_k(as_e4m3(in.k)), narrow_v(as_e4m3(in.v));
  const buffer<float> scales(scale_values);
  const buffer<int> lengths(is.lengths), table(in.given_table());
  const buffer<float> sinks(sink_values);
  const decode_strides strides{int64_t{is.queries} * is.heads * kWidth, is.heads * kWidth, kWidth};
  const attention_decode_problem p{.batch = is.batch(),
                                   .queries = is.queries,
                                   .heads = is.heads,
                                   .key_heads = is.key_heads,
                                   .head_dim = kWidth,
                                   .q_strides = strides,
                                   .o_strides = strides,
                                   .cache = in.sizes(is),
                                   .scale = is.scale,
                                   .softcap = is.softcap,
                                   .left = is.left < 0 ? attention_decode_problem::kAll : is.left,
                                   .type = dtype::bfloat16};
  const int teams = is.blocks * kDecodeWarps >> share;
  const decode_heads& form = form_of(is);
  const buffer<float> parts(2 * teams * form.warps() * decode_rows(p) *
                            (form.columns + kDecodeRecordFloats));
  const buffer<int> counters(std::vector<int>(2 * is.blocks, 0));
  run({.problem = p,
       .tensors = {.q = q.data(),
                   .k = is.e4m3 ? static_cast<const void*>(narrow_k.data()) : k.data(),
                   .v = is.e4m3 ? static_cast<const void*>(narrow_v.data()) : v.data(),
                   .o = o.data(),
                   .seqlens = lengths.data(),
                   .table = is.page == 0 ? nullptr : table.data(),
                   .sinks = is.sinks ? sinks.data() : nullptr,
                   .k_scale = is.e4m3 ? scales.data() : nullptr,
                   .v_scale = is.e4m3 ? scales.data() + is.key_heads : nullptr},
       .parts = parts.data(),
       .counters = counters.data(),
       .blocks = is.blocks,
       .share = share});
  std::vector<double> want;
  const std::vector<double> queries = doubles(qs);
  for (int b = 0; b < is.batch(); ++b) {
    for (int i = 0; i < is.queries; ++i) {
      for (int h = 0; h < is.heads; ++h) {
        const auto row = attend(is, in, queries, sink_values, scale_values, b, i, h);
        want.insert(want.end(), row.begin(), row.end());
      }
    }
  }
  // The weights and the result are rounded to bf16: of values of a size of one, averaged.
  check_all("o", o.get(), want, 0x1p-8, 0.012);
  for (const int counter : counters.get()) CHECK_EQUAL(counter, 0);
}

// With as many warps of a block to an item as there may be: a block's items are neighbours.
void check(const problem& is) {
  const decode_heads& form = form_of(is);
  const int rows = is.queries * is.heads / is.key_heads;
  const int of_sequence = is.key_heads / form.heads * ((rows + 15) / 16);
  const int least = form.warps() - 1;  // a team has all warps of a turn
  for (int share = 3; share >= least && of_sequence % (kDecodeWarps >> share) == 0; --share) {
    check_shared(is, share);
  }
}

}  // namespace

TEST(one_token_of_some_sequences) {
  check({.lengths = {70, 0, 33, 1, 64}, .queries = 1, .heads = 6, .key_heads = 2, .capacity = 80});
}
TEST(no_keys) {
  check({.lengths = {0, -3, 0},
         .queries = 2,
         .heads = 6,
         .key_heads = 2,
         .capacity = 40,
         .sinks = true});
}
TEST(several_tokens_in_two_tiles) {
  check({.lengths = {3, 100, -7, 1000}, .queries = 5, .heads = 8, .key_heads = 2, .capacity = 110});
}
TEST(a_tile_with_a_row_of_its_second_half) {  // the ninth
  for (const float softcap : {0.0f, 2.0f}) {
    check({.lengths = {40, 7},
           .queries = 3,
           .heads = 6,
           .key_heads = 2,
           .capacity = 40,
           .softcap = softcap});
  }
}
TEST(heads_side_by_side_in_several_columns) {  // 2 of 6 items, 1 of 3
  check({.lengths = {70, 0, 130}, .queries = 1, .heads = 12, .key_heads = 6, .capacity = 140});
  check({.lengths = {90, 33}, .queries = 2, .heads = 3, .key_heads = 3, .capacity = 100});
  check({.lengths = {300, 5, 0, 90}, .queries = 1, .heads = 16, .key_heads = 8, .capacity = 300});
}
TEST(pages_and_a_window) {
  check({.lengths = {150, 20, 65},
         .queries = 2,
         .heads = 4,
         .key_heads = 2,
         .capacity = 168,
         .page = 24,
         .left = 40});
}
TEST(tiles_within_pages) {
  check({.lengths = {150, 0, 65, 256},
         .queries = 2,
         .heads = 4,
         .key_heads = 2,
         .capacity = 256,
         .page = 64,
         .left = 40});
  check({.lengths = {70}, .queries = 1, .heads = 2, .key_heads = 2, .capacity = 96, .page = 32});
}
// Of a tile's keys the first alone, 32, is hidden, from the second query.
TEST(a_window_that_begins_with_the_second_key_of_a_tile) {
  check({.lengths = {130}, .queries = 2, .heads = 4, .key_heads = 2, .capacity = 130, .left = 96});
}
TEST(many_items_of_a_block) {
  check({.lengths = {130, 40, 0, 200, 5, 33, 97},
         .queries = 1,
         .heads = 4,
         .key_heads = 2,
         .capacity = 200,
         .sinks = true});
}
TEST(sinks_and_a_cap_of_one_long_sequence) {
  check({.lengths = {400},
         .queries = 1,
         .heads = 3,
         .key_heads = 1,
         .capacity = 400,
         .softcap = 2,
         .sinks = true,
         .blocks = 3});
}
TEST(items_of_whole_ranges) {  // the second problem's are of 6, 6, 5 and 5 tiles
  check({.lengths = {320, 320},
         .queries = 1,
         .heads = 2,
         .key_heads = 1,
         .capacity = 320,
         .blocks = 4});
  check({.lengths = {384, 320},
         .queries = 1,
         .heads = 2,
         .key_heads = 1,
         .capacity = 384,
         .blocks = 4});
}
TEST(items_that_end_with_the_first_or_last_tile_of_a_range) {
  // Of 10 and 3 tiles, in ranges of 5, 4 and 4; of 6 and 8, and of 10 and 4, in 5, 5 and 4.
  for (const std::vector<int>& lengths : {std::vector{320, 96}, {192, 256}, {320, 128}}) {
    check({.lengths = lengths,
           .queries = 1,
           .heads = 1,
           .key_heads = 1,
           .capacity = 320,
           .blocks = 3});
  }
}
TEST(more_parts_than_are_loaded_at_once) {  // by one block; of 54, by one for each group
  for (const int blocks : {30, 54}) {
    check({.lengths = {2500},
           .queries = 1,
           .heads = 2,
           .key_heads = 1,
           .capacity = 2500,
           .sinks = true,
           .blocks = blocks});
  }
}
TEST(items_of_many_parts_that_meet_in_a_block) {  // 37 and 42; the first ends with a group of one
  check({.lengths = {73 * 32, 83 * 32},
         .queries = 1,
         .heads = 2,
         .key_heads = 1,
         .capacity = 83 * 32,
         .blocks = 78});
}
TEST(scores_that_differ_by_hundreds_between_parts) {
  check({.lengths = {400, 330},
         .queries = 2,
         .heads = 16,
         .key_heads = 1,
         .capacity = 400,
         .scale = 40,
         .blocks = 5});
}
TEST(only_one_half_of_the_rows_has_a_new_maximum) {  // of which all before is 0 beside it: 16
  for (const int slope : {1, -1, 16, -16}) {
    check({.lengths = {640},
           .queries = 1,
           .heads = 16,
           .key_heads = 1,
           .capacity = 640,
           .blocks = 1,
           .slope = slope});
  }
}
TEST(fewer_tiles_than_workers) {
  check({.lengths = {100}, .queries = 1, .heads = 2, .key_heads = 1, .capacity = 110});
}
TEST(the_second_worker_begins_within_a_tile_of_the_first_item) {  // at tile 15 / 8 of 2 and 13
  check({.lengths = {64, 416}, .queries = 1, .heads = 1, .key_heads = 1, .capacity = 420});
}
TEST(caches_of_e4m3) {
  check({.lengths = {70, 0, 133},
         .queries = 2,
         .heads = 8,
         .key_heads = 2,
         .capacity = 140,
         .sinks = true,
         .e4m3 = true});
  check({.lengths = {150, 65},
         .queries = 1,
         .heads = 4,
         .key_heads = 2,
         .capacity = 168,
         .page = 24,
         .left = 90,
         .softcap = 2,
         .e4m3 = true});
  // Both halves of a tile's rows; queries as they are, of the largest numbers and of the least.
  for (const int exponent : {0, 126, -120}) {
    check({.lengths = {90},
           .queries = 1,
           .heads = 16,
           .key_heads = 1,
           .capacity = 96,
           .scale = std::ldexp(0.125, -exponent),
           .e4m3 = true,
           .exponent = exponent});
  }
}
TEST(more_sequences_than_lanes) {
  problem is{.queries = 1, .heads = 1, .key_heads = 1, .capacity = 40, .sinks = true};
  for (int i = 0; i < 70; ++i) is.lengths.push_back(i % 3 == 0 ? 0 : i % 41);
  check(is);
}
