// quantized_linear: how a step comes to a lane. (quantized_linear.cuh)
//
// The weight comes from memory, through a ring in shared memory, and with it the scales of sums:
// what is asked for behind a ring that is under way is served behind it. x, of which rows that
// there are not cost nothing, and scales of numbers come from L2 or L1 to registers while the step
// before is multiplied. The first of them are asked for before the ring; of a constant weight,
// whose first stage comes while the kernel in front ends, behind that.
#pragma once

#include "kernels/linear/linear_forms.cuh"
#include "kernels/linear/linear_pass.cuh"
#include "kernels/linear/linear_weights.cuh"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

// A lane's part of 16 rows of the weight: of row lane / 4, and of the one 8 further.
template <class Weight>
struct quantized_factor {
  uint4 bytes[2];
  typename Weight::scale scale[2];
};

// A warp's sums of 16 rows of the weight, and all rows of x. Every other two rows have their halves
// exchanged: of lanes that store two share a bank, not four, and of those that read two rows none.
template <int Rows>
struct quantized_sum_tile {
  float sums[Rows][kGroup];

  KITTENS_DEVICE float& operator()(int row, int col) {
    return sums[row][col ^ row / 2 % 2 * (kGroup / 2)];
  }
};

// RowHalves: of 8 rows of x, as many as there are at most.
template <class T, bool Gated, class Weight, int RowHalves, int SharedKb = kLinearSharedKb>
struct quantized_linear_config
    : linear_pass_config<T, linear_form_of<Weight>(SharedKb, RowHalves).tiles, Gated,
                         linear_form_of<Weight>(SharedKb, RowHalves).warps,
                         /*Step=*/4 * Weight::lane_cols> {
  static constexpr linear_form form = linear_form_of<Weight>(SharedKb, RowHalves);
  using weight = Weight;
  using weight_factor = quantized_factor<Weight>;
  using sum_tile = quantized_sum_tile<8 * RowHalves>;
  static constexpr int row_halves = RowHalves, sum_buffers = 2;
  static constexpr int lane_cols = Weight::lane_cols;  // of a step
  static constexpr int stages = form.stages;

  KITTENS_INLINE static constexpr int norm_column(int i, int lane) {
    return lane % 4 * lane_cols + 2 * i;
  }
};

struct quantized_linear_arguments : linear_arguments {
  int64_t x_stride;       // from row to row, in elements
  int64_t weight_stride;  // the same, in bytes
  int weight_bytes;       // of a row
  linear_groups weight_groups;
};

// What a lane copies of a step: 16 bytes of each of its rows, two a tile (quantized_walk), and,
// where sums are scaled, of each fourth row the word that has its scale, and the one that has its
// zero.
template <class Config, bool HasScales = Config::weight::kScalesSums>
struct quantized_stage {
  uint4 bytes[2 * Config::tiles][kWarp];
};
template <class Config>
struct quantized_stage<Config, true> : quantized_stage<Config, false> {
  uint32_t scales[Config::tiles / 2][kWarp], zeros[Config::tiles / 2][kWarp];
};

template <class Config>
struct quantized_linear_shared {
  quantized_stage<Config> ring[Config::warps][Config::stages];
  linear_sums_shared<Config> sums;
};

// The steps of a warp, one pass after the other, and of each a lane's rows of the weight: of tile
// i / 2, number lane / 4 or the one 8 further. What changes with the pass is found once a pass.
template <class Config>
struct quantized_walk {
  static constexpr int rows = 2 * Config::tiles;

  step_walk<Config> at;
  int64_t first;  // this lane's first row
  int left;       // rows of the pass from there on; behind the last step 0

  KITTENS_DEVICE quantized_walk(const linear_arguments& p, const block_groups<Config>& mine) {
    begin_pass(p, mine);
  }
  // Whether another pass begins.
  KITTENS_DEVICE bool advance(const linear_arguments& p, const block_groups<Config>& mine) {
    const int pass = at.pass;
    at.advance(p);
    if (at.pass == pass) return false;
    begin_pass(p, mine);
    return true;
  }
  // How far row i is behind the first, and whether it exists.
  KITTENS_DEVICE static int64_t ahead(int i, const linear_arguments& p) {
    return row_of_group(i) + (i / 2 % Config::tiles_of_group == 1 ? int64_t{p.out_features} : 0);
  }
  KITTENS_DEVICE static bool exists(int i, int left) { return row_of_group(i) < left; }

 private:
  KITTENS_DEVICE static int row_of_group(int i) {
    return i / 2 / Config::tiles_of_group * kGroup + i % 2 * 8;
  }
  KITTENS_DEVICE void begin_pass(const linear_arguments& p, const block_groups<Config>& mine) {
    const int row = mine.first_of(at.pass) * kGroup + arch::lane_id() / 4;
    const int end = mine.count_of(at.pass) * kGroup - arch::lane_id() / 4;
    const int of_all = p.out_features - row;
    first = row;
    left = !at.valid(p, mine) ? 0 : end < of_all ? end : of_all;
  }
};

// A lane's part of a warp's ring, and what goes through it.
template <class Config>
class quantized_feed {
  using T = typename Config::type;
  using weight = typename Config::weight;
  using walk = quantized_walk<Config>;
  static constexpr int kPieces = Config::lane_cols * int(sizeof(T)) / int(sizeof(uint4));  // of x

 public:
  KITTENS_DEVICE quantized_feed(quantized_linear_shared<Config>& shared,
                                const quantized_linear_arguments& p,
                                const block_groups<Config>& mine)
      : ring_(shared.ring[arch::warp_id()]),
        p_(p),
        mine_(mine),
        lane_(arch::lane_id()),
        next_(p, mine),
        now_(p, mine) {
    find_pass();
    // Of a constant weight the first step comes while the kernel in front ends.
    if constexpr (Config::weight_is_constant) {
      request(0);
      begin_dependent_grid();
    }
    load_ahead();
    for (int i = Config::weight_is_constant; i < Config::stages; ++i) request(i);
  }

  KITTENS_DEVICE void take(linear_factors<Config>& factors, int) {
    give_x(factors.x);
    arch::cp_async_wait<Config::stages - 1>();
    const quantized_stage<Config>& stage = ring_[at_.stage];
#pragma unroll
    for (int i = 0; i < walk::rows; ++i) {
      factors.weight[i / 2].bytes[i % 2] = arch::load_shared(&stage.bytes[i][lane_]);
    }
    give_scales(factors.weight, stage);
    now_.advance(p_, mine_);
    load_ahead();
    request(at_.stage);
    at_.advance();
  }

 private:
  // Of the rows of a step, those whose columns this lane has.
  KITTENS_DEVICE int column(const walk& of) const {
    return of.at.step * Config::step + lane_ % 4 * Config::lane_cols;
  }
  KITTENS_DEVICE int left_of(const walk& of) const {
    return weight::kScalesSums || column(of) < p_.in_features ? of.left : 0;
  }
  // Starts the copies of the next step, if there is one. One group, of nothing too: waits count
  // groups.
  KITTENS_DEVICE void request(int i) {
    quantized_stage<Config>& stage = ring_[i];
    const int byte = (next_.at.step * 4 + lane_ % 4) * int(sizeof(uint4));
    const int left = left_of(next_);
#pragma unroll
    for (int row = 0; row < walk::rows; ++row) {
      arch::cp_async_evict_first</*Uniform=*/false>(
          &stage.bytes[row][lane_], weight_ + byte + walk::ahead(row, p_) * p_.weight_stride,
          walk::exists(row, left));
    }
    if constexpr (weight::kScalesSums) {
      const auto* const scales = static_cast<const unsigned short*>(p_.tensors.weight_scale);
      const auto* const zeros = static_cast<const unsigned char*>(p_.tensors.weight_zero);
      const int group = p_.weight_groups.at(column(next_));
#pragma unroll
      for (int n = 0; n < Config::tiles / 2; ++n) {
        const bool exists = walk::exists(4 * n + lane_ % 4, left);
        arch::cp_async<4>(&stage.scales[n][lane_], scales + groups_[n] + group / 2 * 2, exists);
        if (zeros != nullptr) {
          arch::cp_async<4>(&stage.zeros[n][lane_], zeros + groups_[n] + group / 4 * 4, exists);
        }
      }
    }
    arch::cp_async_commit();
    if (next_.advance(p_, mine_)) find_pass();
  }
  KITTENS_DEVICE void find_pass() {
    weight_ = static_cast<const uint8_t*>(p_.tensors.weight) + next_.first * p_.weight_stride;
    if constexpr (weight::kScalesSums) {
#pragma unroll
      for (int n = 0; n < Config::tiles / 2; ++n) {
        groups_[n] = (next_.first + walk::ahead(4 * n + lane_ % 4, p_)) * p_.weight_groups.count;
      }
    }
  }
  // What is not in the ring, of the step that is taken next: it comes while the one before is
  // multiplied.
  KITTENS_DEVICE void load_ahead() {
    load_x();
    if constexpr (weight::kGrouped && !weight::kScalesSums) {
      const int left = left_of(now_), group = p_.weight_groups.at(column(now_));
#pragma unroll
      for (int i = 0; i < walk::rows; ++i) {
        const int64_t row = now_.first + walk::ahead(i, p_);
        scales_[i].load(p_.tensors, row * p_.weight_groups.count + group, walk::exists(i, left));
      }
    }
  }
  // A lane's columns of row lane / 4, and of the one 8 further: all are there, or none. Of rows
  // that there are not it has those of the last one, as nobody reads their sums.
  KITTENS_DEVICE void load_x() {
    const bool there = column(now_) < p_.in_features;
    // Where sums are scaled, steps are whole: behind the last one nobody reads x.
    const int col = weight::kScalesSums && !there ? 0 : column(now_);
#pragma unroll
    for (int half = 0; half < Config::row_halves; ++half) {
      const int row = lane_ / 4 + 8 * half;
      const T* const from = static_cast<const T*>(p_.tensors.x) + col +
                            (row < p_.rows ? row : p_.rows - 1) * p_.x_stride;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const auto* const at = reinterpret_cast<const uint4*>(from) + i;
        x_[i][half] = weight::kScalesSums || there ? arch::load_global(at) : uint4{};
      }
    }
  }
  // Of eight rows, the other half of the tile is not touched.
  KITTENS_DEVICE void give_x(rt<T, kRows, Config::step>& x) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
#pragma unroll
      for (int half = 0; half < Config::row_halves; ++half) {
        const uint4& piece = x_[i][half];
        const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
        for (int n = 0; n < 4; ++n) x.data[0][2 * (4 * i + n) + half] = words[n];
      }
    }
  }
  // Where sums are scaled, the four lanes of a row have copied one of four scales each.
  KITTENS_DEVICE void give_scales(quantized_factor<weight> (&to)[Config::tiles],
                                  const quantized_stage<Config>& stage) const {
    if constexpr (weight::kScalesSums) {
      const int group = p_.weight_groups.at(column(now_));
#pragma unroll
      for (int n = 0; n < Config::tiles / 2; ++n) {
        typename weight::scale mine;
        mine.set(arch::load_shared(&stage.scales[n][lane_]),
                 p_.tensors.weight_zero == nullptr ? nullptr : &stage.zeros[n][lane_], group);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          to[2 * n + i / 2].scale[i % 2].bits = arch::shuffle(mine.bits, lane_ / 4 * 4 + i);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < walk::rows; ++i) to[i / 2].scale[i % 2] = scales_[i];
    }
  }

  quantized_stage<Config> (&ring_)[Config::stages];
  const quantized_linear_arguments& p_;
  const block_groups<Config>& mine_;
  const int lane_;
  walk next_, now_;                    // that is asked for next, and taken next
  const uint8_t* weight_;              // this lane's first row of the one that is asked for next
  int64_t groups_[Config::tiles / 2];  // the first scales of its rows that this lane copies
  cursor<Config::stages> at_;
  // Of the step that is taken next.
  uint4 x_[kPieces][Config::row_halves];
  typename weight::scale scales_[walk::rows];
};

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
