// types/register_tile.cuh: which lane holds what, against the fragments of the PTX ISA.
#include "tiles.h"

using namespace kittens;
using namespace kittens::testing;
namespace rt_layout = ducks::rt_layout;

namespace {

// A place in the fragments of mma.m16n8k16, as the PTX ISA states them.
struct place {
  int row, col;
};

// Element i of lane `lane` in the first operand: a0 … a7 (figure of matrix fragment A, 16 × 16).
place operand_a(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {i < 2 || (i >= 4 && i < 6) ? group : group + 8,
          in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
// In the second one: b0 … b3 (fragment B, 16 × 8).
place operand_b(int lane, int i) { return {lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane >> 2}; }
// In the accumulator: c0 … c3 (fragment C and D, 16 × 8).
place accumulator(int lane, int i) {
  return {i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1)};
}

// What lies in data[line], element by element: out[lane][line][i], i counting the elements.
template <class R>
__global__ void show_elements(const float* in, float* out) {
  R tile;
  gather(tile, in);
  constexpr int kLine = R::line_tiles * R::kPairs * 2;
  for (int line = 0; line < R::lines; ++line) {
    for (int i = 0; i < kLine; ++i) {
      typename R::dtype element;
      const auto* first = reinterpret_cast<const unsigned char*>(tile.data[line]);
      std::memcpy(static_cast<void*>(&element), first + i * sizeof(element), sizeof(element));
      out[(arch::lane_id() * R::lines + line) * kLine + i] = convert<float>(element);
    }
  }
}

template <class R>
struct elements {
  static constexpr int kLine = R::line_tiles * R::kPairs * 2;
  const std::vector<float> values = run_on_tile(show_elements<R>, exact_tile<R>(), R::num_elements);
  float operator()(int lane, int line, int i) const {
    return values[(lane * R::lines + line) * kLine + i];
  }
};

template <class R>
float element_at(int row, int col) {
  return exact_value(row * R::cols + col);
}

TEST(row_layout_is_the_first_operand) {
  using tile = rt_bf<32, 64>;
  const elements<tile> of;
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int line = 0; line < 2; ++line) {
      for (int k = 0; k < 4; ++k) {  // fragment number k
        for (int i = 0; i < 8; ++i) {
          const place at = operand_a(lane, i);
          CHECK_EQUAL(of(lane, line, k * 8 + i),
                      element_at<tile>(line * 16 + at.row, k * 16 + at.col));
        }
      }
    }
  }
}

TEST(row_layout_is_the_accumulator) {
  using tile = rt_fl<16, 64>;
  const elements<tile> of;
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int n = 0; n < 8; ++n) {  // of 8 columns each
      for (int i = 0; i < 4; ++i) {
        const place at = accumulator(lane, i);
        CHECK_EQUAL(of(lane, 0, n * 4 + i), element_at<tile>(at.row, n * 8 + at.col));
      }
    }
  }
}

// Pairs 0 and 2 of a base tile are the operand for its columns 0 … 7, pairs 1 and 3 for the others.
TEST(column_layout_is_the_second_operand) {
  using tile = rt_hf<32, 48, rt_layout::col>;
  const elements<tile> of;
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int line = 0; line < 3; ++line) {
      for (int k = 0; k < 2; ++k) {
        for (int half_of_cols = 0; half_of_cols < 2; ++half_of_cols) {
          for (int i = 0; i < 4; ++i) {
            const place at = operand_b(lane, i);
            const int pair = half_of_cols + i / 2 * 2;
            CHECK_EQUAL(of(lane, line, k * 8 + pair * 2 + i % 2),
                        element_at<tile>(k * 16 + at.row, line * 16 + half_of_cols * 8 + at.col));
          }
        }
      }
    }
  }
}

template <class R>
__global__ void there_and_back(const float* in, float* out) {
  R tile;
  gather(tile, in);
  scatter(out, tile);
}

TEST(every_tile_holds_every_element_once) {
  for_each_register_tile([&]<class R>() {
    check_tile<R>(run_on_tile(there_and_back<R>, exact_tile<R>(), R::num_elements), element_at<R>);
  });
}

// The lanes that have element (r, c) of a tile have value r of col_vec and value c of row_vec.
template <class V>
int lane_value(int lane, int run, int i) {
  return V::first(run, lane) + i;
}

template <class R>
void check_vectors() {
  using across = std::conditional_t<R::is_row, typename R::col_vec, typename R::row_vec>;
  using along = std::conditional_t<R::is_row, typename R::row_vec, typename R::col_vec>;
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int line = 0; line < R::lines; ++line) {
      for (int t = 0; t < R::line_tiles; ++t) {
        for (int p = 0; p < R::kPairs; ++p) {
          CHECK_EQUAL(lane_value<across>(lane, line * 2 + p % 2, 0), R::across(line, p, lane));
          CHECK_EQUAL(lane_value<along>(lane, t * 2 + p / 2, 0), R::along(t, p, lane));
          CHECK_EQUAL(lane_value<along>(lane, t * 2 + p / 2, 1), R::along(t, p, lane) + 1);
        }
      }
    }
  }
}

TEST(vectors_lie_beside_their_tile) {
  check_vectors<rt_fl<32, 48, rt_layout::row>>();
  check_vectors<rt_fl<32, 48, rt_layout::col>>();
  static_assert(rt_bf<16, 64>::row_vec::length == 64 && rt_bf<16, 64>::col_vec::length == 16);
}

TEST(sizes_are_those_of_the_elements) {
  static_assert(sizeof(rt_bf<16, 64>) * kWarp == 16 * 64 * 2);
  static_assert(sizeof(rt_fl<32, 48, rt_layout::col>) * kWarp == 32 * 48 * 4);
  static_assert(std::same_as<rt_bf_1x4<rt_layout::col>, rt<bf16, 16, 64, rt_layout::col>>);
  static_assert(std::same_as<rt_fl_2x1<>, rt<float, 32, 16, rt_layout::row>>);
  static_assert(same_tile_layout<rt_bf<16, 64>, rt_fl<16, 64>>);
  static_assert(!same_tile_layout<rt_bf<16, 64>, rt_bf<16, 64, rt_layout::col>>);
}

}  // namespace
