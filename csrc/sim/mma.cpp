// mma.sync, ldmatrix and stmatrix: what the lanes of a warp do together.
#include <cstring>

#include "sim/block.hpp"
#include "sim/matrix_api.hpp"
#include "sim/race/race.hpp"
#include "sim/tensor_core.hpp"

namespace kittens::sim {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kRowBytes = 16;

struct mma_lane {
  matrix_type type;
  float* d;
  const uint32_t *a, *b;
  const float* c;
};

// Row `row` of count matrices is where lane 8·i + row points.
struct matrix_lane {
  uint8_t* row;
  uint32_t* words;
  int count;
  bool transposed;
};

template <class Lane>
Lane& lane_at(const meeting::contributions& lanes, int i) {
  return *static_cast<Lane*>(lanes[i]);
}

// A lane has two elements side by side of a, c and d, and two of a column of b.
void do_mma(const meeting::contributions& lanes) {
  warp_product product;
  for (int lane = 0; lane < 32; ++lane) {
    const auto& mine = lane_at<mma_lane>(lanes, lane);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      std::memcpy(&product.a[group + i % 2 * 8][pair + i / 2 * 8], &mine.a[i], sizeof mine.a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      product.b[pair + i * 8][group] = static_cast<uint16_t>(mine.b[i]);
      product.b[pair + i * 8 + 1][group] = static_cast<uint16_t>(mine.b[i] >> 16);
      std::memcpy(&product.d[group + i * 8][pair], mine.c + 2 * i, 2 * sizeof *mine.c);
    }
  }
  multiply_add(lane_at<mma_lane>(lanes, 0).type, product);
  for (int lane = 0; lane < 32; ++lane) {
    float* const d = lane_at<mma_lane>(lanes, lane).d;
    for (int i = 0; i < 2; ++i) {
      std::memcpy(d + 2 * i, &product.d[lane / 4 + i * 8][lane % 4 * 2], 2 * sizeof *d);
    }
  }
}

uint8_t* element_at(const meeting::contributions& lanes, int matrix, int row, int column) {
  return lane_at<matrix_lane>(lanes, 8 * matrix + row).row + 2 * column;
}

// Calls f(word, low, high) for each word of the lanes, with where its two elements are.
template <class F>
void for_each_word(const meeting::contributions& lanes, F f) {
  for (int lane = 0; lane < 32; ++lane) {
    const auto& mine = lane_at<matrix_lane>(lanes, lane);
    const int line = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < mine.count; ++i) {
      f(mine.words[i],
        mine.transposed ? element_at(lanes, i, pair, line) : element_at(lanes, i, line, pair),
        mine.transposed ? element_at(lanes, i, pair + 1, line)
                        : element_at(lanes, i, line, pair + 1));
    }
  }
}

void do_load(const meeting::contributions& lanes) {
  for_each_word(lanes, [](uint32_t& word, const uint8_t* low, const uint8_t* high) {
    uint16_t elements[2];
    std::memcpy(&elements[0], low, sizeof elements[0]);
    std::memcpy(&elements[1], high, sizeof elements[1]);
    word = elements[0] | uint32_t{elements[1]} << 16;
  });
}

void do_store(const meeting::contributions& lanes) {
  for_each_word(lanes, [](uint32_t word, uint8_t* low, uint8_t* high) {
    const uint16_t elements[2] = {static_cast<uint16_t>(word), static_cast<uint16_t>(word >> 16)};
    std::memcpy(low, &elements[0], sizeof elements[0]);
    std::memcpy(high, &elements[1], sizeof elements[1]);
  });
}

void meet(const char* operation, void* contribution, meeting::work work, call_site site) {
  block& b = block::running();
  b.current_warp().meet(b, operation, kAllLanes, contribution, work, site);
}

void check_row(const char* operation, const void* row, int count, bool writes, call_site site) {
  const bool is_used = self->thread % 32 < 8 * count;
  if (!is_used) return;
  check_shared(operation, row, kRowBytes, site);
  race::access(row, kRowBytes, writes);
}

}  // namespace

void mma_m16n8k16(matrix_type type, float* d, const uint32_t* a, const uint32_t* b, const float* c,
                  call_site site) {
  // d may be c, which is read before.
  mma_lane mine{type, d, a, b, c};
  count("mma_m16n8k16", nullptr, 0, site);
  meet(type == matrix_type::half ? "mma_m16n8k16<half>" : "mma_m16n8k16<bf16>", &mine, &do_mma,
       site);
}

void load_matrix(uint32_t* d, int count, bool transposed, const void* row, call_site site) {
  KITTENS_RACE_CALL("load_matrix", site);
  check_row("load_matrix", row, count, false, site);
  matrix_lane mine{static_cast<uint8_t*>(const_cast<void*>(row)), d, count, transposed};
  meet("load_matrix", &mine, &do_load, site);
}

void store_matrix(void* row, const uint32_t* s, int count, bool transposed, call_site site) {
  KITTENS_RACE_CALL("store_matrix", site);
  check_row("store_matrix", row, count, true, site);
  matrix_lane mine{static_cast<uint8_t*>(row), const_cast<uint32_t*>(s), count, transposed};
  meet("store_matrix", &mine, &do_store, site);
}

}  // namespace kittens::sim
