// The kernel of cache_append against its definition in double.
#include <algorithm>
#include <kittens.cuh>
#include <limits>

#include "cache_append.h"
#include "e4m3.h"
#include "problem.h"

using namespace kittens::testing;
using namespace thunderkittens;
using kittens::bf16;

namespace {

struct append_problem {
  std::vector<int> lengths;
  int tokens, key_heads, width, capacity, rotated = 0, page = 0;
  bool in_runs = true, e4m3 = false;
};

template <class Table>
void check_append(const append_problem& is) {
  const int batch = int(is.lengths.size()), page = is.page == 0 ? is.capacity : is.page;
  const int columns = is.capacity / page, pages = batch * columns, pairs = is.rotated / 2;
  constexpr int kRows = 20;  // of the tables
  std::vector<int> places;
  for (int i = 0; i < pages; ++i) places.push_back(is.page == 0 ? i : pages - 1 - i);
  if (is.page != 0) places[2] = pages, places[columns] = -1;  // where there are new tokens
  const int64_t token = int64_t{is.key_heads} * is.width;
  const auto ks = normal_values<bf16>(batch * is.tokens * token, 1);
  const auto vs = normal_values<bf16>(batch * is.tokens * token, 2);
  auto old_ks = normal_values<bf16>(pages * page * token, 3);
  auto old_vs = normal_values<bf16>(pages * page * token, 4);
  const auto coss = normal_values<Table>(kRows * pairs + 1, 5);
  const auto sins = normal_values<Table>(kRows * pairs + 1, 6);
  const buffer<bf16> k(ks), v(vs), k_cache(old_ks), v_cache(old_vs);
  const buffer<uint8_t> narrow_k(as_e4m3(old_ks)), narrow_v(as_e4m3(old_vs));
  std::vector<float> scales(2 * is.key_heads, 1.0f);  // of keys, and of values: some too small
  for (size_t i = 0; i < scales.size() && is.e4m3; ++i) scales[i] = 0.001f * (1 + i);
  const buffer<float> given_scales(scales);
  const buffer<int> lengths(is.lengths), table(places);
  const buffer<Table> cos(coss), sin(sins);
  const decode_strides new_strides{is.tokens * token, token, is.width};
  const decode_strides strides{page * token, token, is.width};
  run({.problem = {.batch = batch,
                   .tokens = is.tokens,
                   .key_heads = is.key_heads,
                   .head_dim = is.width,
                   .k_strides = new_strides,
                   .v_strides = new_strides,
                   .cache = {.pages = pages,
                             .page_size = page,
                             .k_strides = strides,
                             .v_strides = strides,
                             .paged = is.page != 0,
                             .table_width = columns,
                             .table_stride = columns,
                             .e4m3 = is.e4m3},
                   .rotated = is.rotated,
                   .table_rows = kRows,
                   .cos_stride = pairs,
                   .sin_stride = pairs,
                   .type = dtype::bfloat16,
                   .table_type = std::is_same_v<Table, float> ? dtype::float32 : dtype::bfloat16},
       .tensors = {.k = k.data(),
                   .v = v.data(),
                   .k_cache = is.e4m3 ? static_cast<void*>(narrow_k.data()) : k_cache.data(),
                   .v_cache = is.e4m3 ? static_cast<void*>(narrow_v.data()) : v_cache.data(),
                   .seqlens = lengths.data(),
                   .table = is.page == 0 ? nullptr : table.data(),
                   .cos = cos.data(),
                   .sin = sin.data(),
                   .k_scale = is.e4m3 ? given_scales.data() : nullptr,
                   .v_scale = is.e4m3 ? given_scales.data() + is.key_heads : nullptr}},
      is.in_runs);
  if (is.e4m3) round_to_e4m3(old_ks), round_to_e4m3(old_vs);
  std::vector<double> want_k = doubles(old_ks), want_v = doubles(old_vs);
  const auto new_k = doubles(ks), new_v = doubles(vs), c = doubles(coss), s = doubles(sins);
  for (int b = 0; b < batch; ++b) {
    for (int i = 0; i < is.tokens; ++i) {
      const int64_t position = int64_t{is.lengths[b]} - is.tokens + i;
      if (position < 0 || position >= is.capacity) continue;
      const int place = places[b * columns + position / page];
      if (place < 0 || place >= pages) continue;
      for (int h = 0; h < is.key_heads; ++h) {
        const int64_t to = (place * page + position % page) * token + h * is.width;
        const int64_t from = (b * is.tokens + i) * token + h * is.width;
        for (int col = 0; col < is.width; ++col) {
          want_v[to + col] = new_v[from + col];
          want_k[to + col] = new_k[from + col];
        }
        for (int j = 0; j < pairs; ++j) {
          const int64_t at = std::min<int64_t>(position, kRows - 1) * pairs + j;
          const double x = new_k[from + j], y = new_k[from + j + pairs];
          want_k[to + j] = x * c[at] - y * s[at];
          want_k[to + j + pairs] = x * s[at] + y * c[at];
        }
        for (int col = 0; col < is.width && is.e4m3; ++col) {
          const float k_scale = scales[h], v_scale = scales[is.key_heads + h];
          want_v[to + col] = float_of(e4m3_of(float(want_v[to + col]) / v_scale));
          want_k[to + col] = std::clamp(want_k[to + col] / k_scale, -448.0, 448.0);
        }
      }
    }
  }
  if (is.e4m3) {  // of 4 bits, of steps of 2^-9 at least
    check_all("k_cache", floats_of(narrow_k.get()), want_k, 0x1.2p-4, 0x1.1p-10);
    check_all("v_cache", floats_of(narrow_v.get()), want_v, 0, 0);
    return;
  }
  check_all("k_cache", k_cache.get(), want_k, 0x1.1p-8, 1e-5);
  check_all("v_cache", v_cache.get(), want_v, 0, 0);
}

constexpr int kFar = std::numeric_limits<int>::max();

}  // namespace

TEST(runs_are_turned_and_copied) {
  check_append<float>({.lengths = {2, 30, 1, 33, 22},
                       .tokens = 2,
                       .key_heads = 3,
                       .width = 64,
                       .capacity = 32,
                       .rotated = 32});
}
TEST(elements_go_to_pages) {
  check_append<bf16>({.lengths = {40, 17, 0, -3, 49, kFar, -kFar, 48},
                      .tokens = 3,
                      .key_heads = 30,
                      .width = 10,
                      .capacity = 48,
                      .rotated = 6,
                      .page = 16,
                      .in_runs = false});
}
TEST(e4m3_is_appended_in_runs_and_by_elements) {
  check_append<float>({.lengths = {2, 30, 1, 33},
                       .tokens = 2,
                       .key_heads = 3,
                       .width = 64,
                       .capacity = 32,
                       .rotated = 32,
                       .e4m3 = true});
  check_append<bf16>({.lengths = {40, 17, 0},
                      .tokens = 3,
                      .key_heads = 4,
                      .width = 10,
                      .capacity = 48,
                      .rotated = 6,
                      .page = 16,
                      .in_runs = false,
                      .e4m3 = true});
}
TEST(nothing_is_turned) {
  check_append<float>({.lengths = {9, 8}, .tokens = 1, .key_heads = 1, .width = 16, .capacity = 8});
}
