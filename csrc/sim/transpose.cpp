// movmatrix: the lanes of a warp transpose the 8 × 8 matrix that they hold.
#include <cstdint>

#include "sim/block.hpp"
#include "sim/matrix_api.hpp"

namespace kittens::sim {
namespace {

struct matrix_word {
  uint32_t given, taken;
};

matrix_word& lane_at(const meeting::contributions& lanes, int i) {
  return *static_cast<matrix_word*>(lanes[i]);
}

// Lane l has elements (l / 4, l % 4 · 2) and the one after it, the first in the low half.
uint32_t element(const meeting::contributions& lanes, int row, int column) {
  return lane_at(lanes, row * 4 + column / 2).given >> (column % 2 * 16) & 0xffffu;
}

void do_transpose(const meeting::contributions& lanes) {
  for (int l = 0; l < 32; ++l) {
    const int row = l / 4, column = l % 4 * 2;
    lane_at(lanes, l).taken = element(lanes, column, row) | element(lanes, column + 1, row) << 16;
  }
}

}  // namespace

uint32_t transpose_matrix(uint32_t word, call_site site) {
  matrix_word mine{word, 0};
  block& b = block::running();
  b.current_warp().meet(b, "transpose_matrix", 0xffffffffu, &mine, &do_transpose, site);
  return mine.taken;
}

}  // namespace kittens::sim
