// What the kernels of cross_entropy share: a row's pieces in memory, its sums, and what follows
// from them.
//
// Kernels live in an inline namespace of their target: one file is compiled for several targets,
// and the linker would merge the host sides of their template kernels.
#pragma once

#include <kittens.cuh>

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cross_entropy/cross_entropy.h"

namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET {

using namespace kittens;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// ---- A row in memory ----------------------------------------------------------------------------

// 16 bytes of a row: what one instruction moves.
template <class T>
struct vector16 {
  static constexpr int kLength = 16 / int(sizeof(T));
  using run = lane_run<T, kLength>;

  KITTENS_DEVICE static run from_global(const T* p) {
    return as_run(arch::load_global(reinterpret_cast<const uint4*>(p)));
  }
  KITTENS_DEVICE static run from_shared(const T* p) {
    return as_run(arch::load_shared(reinterpret_cast<const uint4*>(p)));
  }
  KITTENS_DEVICE static run all(float value) {
    float values[kLength];
#pragma unroll
    for (float& each : values) each = value;
    run v;
    v.set(values);
    return v;
  }
  // Where not `aligned`, element by element.
  KITTENS_DEVICE static void to_global(T* p, const run& v, bool aligned) {
    if (aligned) {
      uint4 word;
      std::memcpy(&word, &v, sizeof(word));
      arch::store_global(reinterpret_cast<uint4*>(p), word);
      return;
    }
    lane_run<T, 1> single[kLength];
    std::memcpy(static_cast<void*>(&single), &v, sizeof(v));
#pragma unroll
    for (int i = 0; i < kLength; ++i) arch::store_global(p + i, single[i].words[0]);
  }

 private:
  KITTENS_DEVICE static run as_run(const uint4& word) {
    run v;
    std::memcpy(static_cast<void*>(&v), &word, sizeof(v));
    return v;
  }
};

template <class T>
KITTENS_DEVICE int elements_past_16_bytes(const T* p) {
  return int(reinterpret_cast<uintptr_t>(p) % 16 / sizeof(T));
}

// A row of any width at any address: a body of aligned 16-byte vectors, and up to 14 loose elements
// before and after it, one for each of a warp's first lanes. (50257 columns, as GPT-2 has: each row
// begins elsewhere between two vectors.)
template <class T>
struct row_pieces {
  static constexpr int kVector = vector16<T>::kLength;
  int head, vectors, tail;

  KITTENS_DEVICE row_pieces(const T* row, int64_t width) {
    const int past = elements_past_16_bytes(row);
    head = past == 0 ? 0 : kVector - past;
    if (head > width) head = int(width);
    vectors = (int(width) - head) / kVector;
    tail = int(width) - head - vectors * kVector;
  }
  // The first column of a vector of the body.
  KITTENS_DEVICE int column(int vector) const { return head + vector * kVector; }
  KITTENS_DEVICE bool has_loose(int i) const { return i < head + tail; }
  KITTENS_DEVICE int loose_column(int i) const { return i < head ? i : i + vectors * kVector; }
};

// ---- A row's sums -------------------------------------------------------------------------------

// Of N values from the First on, by halves: short chains of operations, and small errors.
template <int First, int N, class F, int Count>
KITTENS_DEVICE float fold(const float (&x)[Count], F combine) {
  if constexpr (N == 1) {
    return x[First];
  } else {
    return combine(fold<First, N / 2>(x, combine), fold<First + N / 2, N - N / 2>(x, combine));
  }
}
template <int N>
KITTENS_DEVICE float largest_of(const float (&x)[N]) {
  return fold<0, N>(x, [](float a, float b) { return fmaxf(a, b); });
}
template <int N>
KITTENS_DEVICE float sum_of(const float (&x)[N]) {
  return fold<0, N>(x, [](float a, float b) { return a + b; });
}

// The unit of a row's plain sum, so that it does not overflow: one of as many columns as there can
// be.
inline constexpr float kPlainUnit = 1.0f / kCrossEntropyMaxWidth;

// A row's sums are taken relative to `top`, which stands for its largest logit. It is the largest
// logit times log2(e), rounded, so that a power is one fma and one exponential. The rounding takes
// all powers of the row by one factor from 1, which cancels out, as long as that is far from 0 and
// infinity: at most 2^±32 for |top| < 2³⁰. From there on a row is far, and summed up again
// (cross_entropy_far.cuh). top starts at −2³⁰: a part of a row all of whose logits are below that
// has powers of 0, not of what the rounding of such a top would make of them.
inline constexpr float kFar = 1 << 30;

struct near_powers {
  static constexpr float least_top = -kFar;
  KITTENS_DEVICE static float top_of(float largest) { return largest * kLog2e; }
  KITTENS_DEVICE static float power(float x, float top) {
    return arch::exp2_approx(arch::fma(x, kLog2e, -top));
  }
  // What takes a power relative to `before` to one relative to `top`.
  KITTENS_DEVICE static float rescaled(float before, float top) {
    return arch::exp2_approx(before - top);
  }
  KITTENS_DEVICE static float log_of(float top, float total) {
    return (top + arch::log2_approx(total)) * kLn2;
  }
};

// Of some of a row's logits x.
template <class Powers>
struct row_sums {
  // Finite, so that −inf can be taken relative to it.
  float top = Powers::least_top;
  float total = 0.0f;  // Σ e^x, relative to top
  float plain = 0.0f;  // Σ x · kPlainUnit, where labels are smoothed

  // Those that do not exist are −inf.
  template <int N>
  KITTENS_DEVICE void include(const float (&x)[N]) {
    const float before = top;
    top = fmaxf(top, Powers::top_of(largest_of(x)));
    float powers[N];
#pragma unroll
    for (int i = 0; i < N; ++i) powers[i] = Powers::power(x[i], top);
    total = arch::fma(total, Powers::rescaled(before, top), sum_of(powers));
  }
  template <int N>
  KITTENS_DEVICE void include_plain(const float (&x)[N]) {
    float sum = x[0] * kPlainUnit;
#pragma unroll
    for (int i = 1; i < N; ++i) sum = arch::fma(x[i], kPlainUnit, sum);
    plain += sum;
  }
  KITTENS_DEVICE void include_one(float x, bool smoothing) {
    const float one[1] = {x};
    include(one);
    if (smoothing) include_plain(one);
  }

  KITTENS_DEVICE void include(const row_sums& other) {
    const float before = top;
    top = fmaxf(top, other.top);
    total = arch::fma(total, Powers::rescaled(before, top),
                      other.total * Powers::rescaled(other.top, top));
    plain += other.plain;
  }

  // Over the lanes of a warp; each gets the same bits.
  KITTENS_DEVICE void combine_lanes(bool smoothing) {
    const float own = top;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) top = fmaxf(top, arch::shuffle_xor(top, mask));
    total *= Powers::rescaled(own, top);
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) total += arch::shuffle_xor(total, mask);
    if (!smoothing) return;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) plain += arch::shuffle_xor(plain, mask);
  }
};

using near_sums = row_sums<near_powers>;

// Where the warps of a group leave their sums for each other: twice, since a fast warp may be at
// the next sums while a slow one still reads, so that one barrier is enough for each.
struct group_sums {
  static constexpr int kMaxWarps = 32;
  float top[2][kMaxWarps], total[2][kMaxWarps], plain[2][kMaxWarps];
};

// The sums of a row over a block's `warps` first warps, which meet at a named barrier; what a
// thread read of global memory before, others may write afterwards.
inline constexpr int kSumsBarrier = 1;
template <class Sums>
KITTENS_DEVICE void combine(Sums& sums, group_sums& shared, int half, int warp, int warps,
                            bool smoothing) {
  sums.combine_lanes(smoothing);
  if (warps == 1) return arch::sync_warp();
  const int lane = arch::lane_id();
  if (lane == 0) {
    arch::store_shared(&shared.top[half][warp], sums.top);
    arch::store_shared(&shared.total[half][warp], sums.total);
    arch::store_shared(&shared.plain[half][warp], sums.plain);
  }
  arch::named_barrier_sync(kSumsBarrier, warps * kWarp);
  sums = {};
  if (lane < warps) {
    sums.top = arch::load_shared(&shared.top[half][lane]);
    sums.total = arch::load_shared(&shared.total[half][lane]);
    sums.plain = arch::load_shared(&shared.plain[half][lane]);
  }
  sums.combine_lanes(smoothing);
}

// ---- A row's target, loss and gradient ----------------------------------------------------------

template <class Params>
KITTENS_DEVICE int64_t load_target(const Params& p, int64_t r) {
  return p.int64_targets ? arch::load_global(static_cast<const int64_t*>(p.targets) + r)
                         : int64_t(arch::load_global(static_cast<const int*>(p.targets) + r));
}

// The target's column; −1 where it is none.
KITTENS_DEVICE int column_of(int64_t target, int64_t width) {
  return target >= 0 && target < width ? int(target) : -1;
}

// One lane of a row calls, behind its sums: tells the host, if that has asked, of a target that is
// no column. (It is not 0, which stands for none there. It is loaded again, for the row has taken
// the registers.)
KITTENS_DEVICE void tell_if_outside(const cross_entropy_forward_params& p, int64_t r, int column) {
  if (column < 0 && p.outside != nullptr) arch::store_global(p.outside, load_target(p, r));
}

// How many of the targets `first`, first + step, … are not ignored. Their type is asked once: with
// a branch around each load, none is under way before the last one is there.
template <int Together, class Params>
KITTENS_DEVICE int64_t count_targets(const Params& p, int64_t first, int64_t step) {
  const auto count_of = [&](const auto* targets) {
    int64_t count = 0;
#pragma unroll Together
    for (int64_t r = first; r < p.rows; r += step) {
      count += arch::load_global(targets + r) != p.ignore_index ? 1 : 0;
    }
    return count;
  };
  return p.int64_targets ? count_of(static_cast<const int64_t*>(p.targets))
                         : count_of(static_cast<const int*>(p.targets));
}

// A lane's part of how many targets are not ignored.
KITTENS_DEVICE int64_t count_of_lane(const cross_entropy_forward_params& p) {
  static_assert(kCrossEntropyParts == kWarp);
  if (!p.mean) return 0;
  const int lane = arch::lane_id();
  if (p.counts != nullptr) return arch::load_global(p.counts + lane);
  return count_targets<4>(p, lane, kWarp);
}

// What gradient and total are divided by, of the counts of a warp's lanes, which call together.
KITTENS_DEVICE float divisor(const cross_entropy_forward_params& p, int64_t count) {
  if (!p.mean) return 1.0f;
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) count += arch::shuffle_xor(count, mask);
  return float(count);
}

// How the gradient follows from a logit x of column j: scale · e^x, relative to top, + shift, and
// `hit` more where j is the target.
template <class Powers>
struct row_gradient {
  float top, scale, shift, hit;
  int target;

  template <int N>
  KITTENS_DEVICE void apply(float (&x)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = arch::fma(Powers::power(x[i], top), scale, shift);
  }
  template <int N>
  KITTENS_DEVICE void hit_target(float (&x)[N], int first_column) const {
    const int at = target - first_column;
    if (at < 0 || at >= N) return;
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] += i == at ? hit : 0.0f;
  }
};

// Whether a row has a loss that is a number. target: as column_of gives it.
template <class Powers>
KITTENS_DEVICE bool is_defined(const row_sums<Powers>& sums, int target) {
  return target >= 0 && sums.total > 0.0f;
}

template <class Powers>
KITTENS_DEVICE float log_sum_exp(const row_sums<Powers>& sums, int target) {
  return is_defined(sums, target) ? Powers::log_of(sums.top, sums.total) : kNaN;
}

// plain: that of the row's sums. x_target: the target's logit; any number where there is none. A
// mean of logits is no larger than they are, so only what is too large for a float is infinite.
KITTENS_DEVICE float loss_of(const cross_entropy_forward_params& p, float plain, float lse,
                             float x_target) {
  float mean = (1.0f - p.label_smoothing) * x_target;
  if (p.label_smoothing > 0.0f) {
    mean = arch::fma(p.label_smoothing / (float(p.width) * kPlainUnit), plain, mean);
  }
  float loss = lse - mean;
  if (p.z_loss > 0.0f) loss = arch::fma(p.z_loss * lse, lse, loss);
  return loss;
}

// factor: what the gradient of the row is multiplied by.
template <class Powers>
KITTENS_DEVICE row_gradient<Powers> gradient_of(const cross_entropy_forward_params& p,
                                                const row_sums<Powers>& sums, float lse, int target,
                                                float factor) {
  const float smooth = p.label_smoothing / float(p.width), sharp = 1.0f - p.label_smoothing;
  const float weight = p.z_loss > 0.0f ? arch::fma(2.0f * p.z_loss, lse, 1.0f) : 1.0f;
  const float scale = is_defined(sums, target) ? factor * weight / sums.total : kNaN;
  return {sums.top, scale, -factor * smooth, -factor * sharp, target};
}

// ---- Few rows' total ----------------------------------------------------------------------------

// A loss goes to the total through a mailbox, a word of global memory: whoever sees it has the
// loss, so neither side needs a fence. The sign is turned over, for 0 is an empty box: it would be
// −0, which no loss is once 0 has been added.
inline constexpr unsigned kTurnedSign = 0x80000000u;

// One lane of a row's warps calls.
KITTENS_DEVICE void hand_in_loss(const cross_entropy_forward_params& p, int64_t r, float loss) {
  if (p.loss != nullptr) arch::store_global(p.loss + r, loss);
  if (p.total == nullptr) return;
  arch::atomic_exchange(p.mailboxes + r, std::bit_cast<unsigned>(loss + 0.0f) ^ kTurnedSign);
}

// Adds up the losses of all rows, always in the same order, when they have come, and empties their
// boxes. One warp of the last row's block calls. A lane looks into nine boxes together: those of
// 264 rows, as many as are few on an H200, take one round trip.
//
// Nothing promises that the blocks it waits for were started before it, only that they find a
// place: others_find_room sees to that.
KITTENS_DEVICE void add_up_losses(const cross_entropy_forward_params& p, float divided_by) {
  constexpr int kBoxes = 9;
  const int lane = arch::lane_id();
  float total = 0.0f;
  for (int64_t first = lane; first < p.rows; first += kBoxes * kWarp) {
    unsigned words[kBoxes];
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) words[i] = first + i * kWarp < p.rows ? 0 : kTurnedSign;
    bool complete;
    do {
#pragma unroll
      for (int i = 0; i < kBoxes; ++i) {
        unsigned* const box = p.mailboxes + first + i * kWarp;
        if (words[i] == 0) words[i] = arch::atomic_exchange(box, 0);
      }
      complete = true;
#pragma unroll
      for (int i = 0; i < kBoxes; ++i) complete &= words[i] != 0;
    } while (!complete);
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) total += std::bit_cast<float>(words[i] ^ kTurnedSign);
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) total += arch::shuffle_xor(total, mask);
  if (lane == 0) arch::store_global(p.total, total / divided_by);  // 0 / 0 is torch's NaN, too
}

}  // namespace thunderkittens::cross_entropy_kernels::inline KITTENS_TARGET
