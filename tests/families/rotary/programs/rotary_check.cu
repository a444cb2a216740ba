// Small calls of rotary against the formula in double.
#include <kittens.cuh>
#include <limits>

#include "problem.h"
#include "rotary.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

constexpr int kRows = 12;  // of the table

struct choices {
  bool conjugate = false, in_place = false, float_tables = false;
  bool int32 = false;  // offsets and starts are int32, not int64
};

struct problem {
  rotary_form form;
  int batch, tokens, heads, key_heads, width, rotated;
  choices how = {};
  int64_t offset = 0;
  std::vector<int64_t> offsets = {}, starts = {};
};

// The row of the table, by the definition.
int64_t row_of(const problem& is, int b, int token) {
  int64_t sequence = b, start = 0;
  if (!is.starts.empty()) {
    sequence = -1;
    for (const int64_t s : is.starts) sequence += s <= token;
    if (sequence >= 0) start = is.starts[sequence];
  }
  const bool has_offset = sequence >= 0 && sequence < int64_t(is.offsets.size());
  const double position =
      double(token - start + is.offset) + (has_offset ? double(is.offsets[sequence]) : 0.0);
  return int64_t(std::min(std::max(position, 0.0), double(kRows - 1)));
}

// The heads of one operand turned.
std::vector<double> turn(const problem& is, const std::vector<double>& x, int heads,
                         const std::vector<double>& cos, const std::vector<double>& sin) {
  std::vector<double> want = x;
  const int pairs = is.rotated / 2;
  const bool neighbours = is.form != rotary_form::halves && is.form != rotary_form::single_halves;
  for (int b = 0; b < is.batch; ++b) {
    for (int t = 0; t < is.tokens; ++t) {
      const int64_t row = row_of(is, b, t) * pairs;
      for (int h = 0; h < heads; ++h) {
        const int64_t head = ((int64_t(b) * is.tokens + t) * heads + h) * is.width;
        for (int i = 0; i < pairs; ++i) {
          const int64_t first = head + (neighbours ? 2 * i : i);
          const int64_t second = neighbours ? first + 1 : first + pairs;
          const double c = cos[row + i], s = is.how.conjugate ? -sin[row + i] : sin[row + i];
          want[first] = x[first] * c - x[second] * s;
          want[second] = x[first] * s + x[second] * c;
        }
      }
    }
  }
  return want;
}

template <class T, class Table>
void check_with_tables(const problem& is) {
  const int64_t tokens = int64_t(is.batch) * is.tokens * is.width;
  const auto qs = normal_values<T>(tokens * is.heads, 1);
  const auto ks = normal_values<T>(tokens * is.key_heads, 2);
  const auto coss = normal_values<Table>(kRows * is.rotated / 2, 3);
  const auto sins = normal_values<Table>(kRows * is.rotated / 2, 4);
  const buffer<T> q(qs), k(ks), new_q(qs.size()), new_k(ks.size());
  const buffer<T>&q_out = is.how.in_place ? q : new_q, &k_out = is.how.in_place ? k : new_k;
  const buffer<Table> cos(coss), sin(sins);
  const buffer<int64_t> offsets(is.offsets), starts(is.starts);
  const buffer<int32_t> offsets_32(std::vector<int32_t>(is.offsets.begin(), is.offsets.end()));
  const buffer<int32_t> starts_32(std::vector<int32_t>(is.starts.begin(), is.starts.end()));
  const auto pick = [&](const auto& given, const void* int64, const void* int32) {
    return given.empty() ? nullptr : is.how.int32 ? int32 : int64;
  };
  const auto operand = [&](const buffer<T>& in, const buffer<T>& out, int heads) {
    const int64_t token = int64_t(heads) * is.width;
    const rotary_strides strides = {is.tokens * token, token, is.width};
    return rotary_operand{in.data(), out.data(), strides, strides, heads};
  };
  const dtype type = std::is_same_v<T, float> ? dtype::float32 : dtype::bfloat16;
  run_rotary(is.form, {
                          .q = operand(q, q_out, is.heads),
                          .k = operand(k, k_out, is.key_heads),
                          .cos = cos.data(),
                          .sin = sin.data(),
                          .offsets = pick(is.offsets, offsets.data(), offsets_32.data()),
                          .cu_seqlens = pick(is.starts, starts.data(), starts_32.data()),
                          .cos_stride = is.rotated / 2,
                          .sin_stride = is.rotated / 2,
                          .table_rows = kRows,
                          .offset = is.offset,
                          .sequences = int64_t(is.starts.size()) - 1,
                          .batch = is.batch,
                          .tokens = is.tokens,
                          .width = is.width,
                          .rotated = is.rotated,
                          .int64_offsets = !is.how.int32,
                          .int64_seqlens = !is.how.int32,
                          .conjugate = is.how.conjugate,
                          .in_place = is.how.in_place,
                          .type = type,
                          .table_type = is.how.float_tables ? dtype::float32 : type,
                      });
  const auto want_q = turn(is, doubles(qs), is.heads, doubles(coss), doubles(sins));
  const auto want_k = turn(is, doubles(ks), is.key_heads, doubles(coss), doubles(sins));
  check_all("q", q_out.get(), want_q, unit<T>(), 64 * unit<float>());
  check_all("k", k_out.get(), want_k, unit<T>(), 64 * unit<float>());
}

template <class T>
void check(const problem& is) {
  return is.how.float_tables ? check_with_tables<T, float>(is) : check_with_tables<T, T>(is);
}

using enum rotary_form;
constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();

}  // namespace

TEST(halves_up_to_the_end_of_the_table) {
  check<bf16>({halves, 2, 3, 5, 2, 48, 32, {}, kRows - 3});
}
TEST(halves_without_a_rest) { check<bf16>({halves, 1, 2, 9, 4, 32, 32, {.float_tables = true}}); }
TEST(neighbours) { check<bf16>({neighbours, 2, 3, 1, 5, 72, 48, {.conjugate = true}, 3}); }
TEST(neighbours_in_place) {
  check<bf16>({neighbours, 1, 5, 5, 2, 40, 16, {.in_place = true, .float_tables = true}, 7});
}
TEST(neighbours_of_4_bytes) {
  check<bf16>({neighbours_of_4_bytes, 2, 3, 2, 1, 14, 4, {.float_tables = true}, 3});
}
TEST(single_elements) { check<float>({single_halves, 2, 5, 3, 3, 9, 6, {.conjugate = true}}); }
TEST(single_neighbours) { check<float>({single_neighbours, 3, 2, 2, 1, 7, 4}); }
TEST(offsets_of_each_batch) {
  check<float>({single_halves, 3, 4, 1, 1, 4, 4, {}, 1, {4, -2, 30}});
  check<float>({single_halves, 3, 4, 1, 1, 4, 4, {.int32 = true}, 0, {4, 0, 8}});
}
TEST(offsets_far_outside) {
  check<float>({single_halves, 4, 4, 1, 1, 4, 4, {}, 5, {kLow, kHigh, -5, 3}});
}
TEST(an_offset_past_the_table) { check<float>({single_halves, 1, 4, 1, 1, 4, 4, {}, 11}); }
TEST(packed) {
  check<bf16>({halves, 1, 11, 2, 1, 16, 16, {}, 2, {}, {0, 4, 4, 9, 11}});
  check<float>({single_halves, 1, 11, 2, 1, 4, 2, {.int32 = true}, 0, {}, {0, 4, 4, 9, 11}});
}
TEST(packed_with_tokens_of_no_sequence) {
  check<float>({single_halves, 1, 13, 1, 1, 4, 4, {}, 0, {3, 1, 2}, {2, 5, 7, 9}});
  check<float>({single_halves, 1, 5, 1, 1, 4, 4, {.int32 = true}, 1, {3}, {0, 3}});
}
TEST(packed_without_a_sequence) { check<float>({single_halves, 1, 3, 1, 1, 4, 4, {}, 0, {}, {1}}); }
