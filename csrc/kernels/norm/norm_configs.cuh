// Which kernels the norms have, and which rows each takes: data, from which norm_launch.cuh makes
// the kernels and chooses among them. Figures behind the choices: benchmarks/layer_norm.md,
// rms_norm.md and add_norm.md.
//
// All that has no configuration here is for the kernels of any_element.cuh.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/norm/norm.h"
#include "kittens/types/dtype.cuh"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {

using kittens::bf16;
using kittens::half;

enum class when {
  always,
  few_rows,         // at most two a multiprocessor
  nothing_dropped,  // no dropout
};
enum class weights { late, early };  // behind the sums, or on their way together with the row

// A configuration of norm_forward (norm_forward.cuh), for rows of from … to columns.
struct forward_form {
  const char* name;
  int64_t from, to;
  int elements;   // of the row, in a lane
  int warps;      // of the row, at most
  int registers;  // of a thread, at most: the fewer, the more rows are on their way
  weights come = weights::late;
  int rows = 1;  // of a block, where each has one warp
  when condition = when::always;
  bool aligned = true;  // rows and addresses are multiples of 16 bytes; else one element an access

  constexpr bool takes(int64_t width, bool is_aligned) const {
    return from <= width && width <= to && aligned == is_aligned;
  }
};

// Those of a kind, x's element type, and that of weight and bias (void: neither is given) and of
// the residual. The first that takes a row is launched.
template <class Kind, class T, class W = T, class R = T>
inline constexpr std::array<forward_form, 0> kForwardForms = {};

// clang-format off
template <>
inline constexpr auto kForwardForms<layer_norm_kind, bf16> = std::to_array<forward_form>({
    // name                     from     to  elements warps registers
    {"four rows a block",        257,   512, 16,  1, 48, weights::early, 4},
    {"one warp",                 769,  1024, 32,  2, 80, weights::early},
    {"one or two warps",         513,  1536, 24,  2, 64, weights::early},
    {"medium rows",             1537,  2047, 32,  8, 80, weights::early},
    {"few rows",                2048,  8192, 32,  8, 80, weights::early, 1, when::few_rows},
    {"long rows",               2048, 16384, 32, 16, 64},
    {"unaligned rows",           257,  8192, 32,  8, 80, weights::late, 1, when::always, false},
});
template <>
inline constexpr auto kForwardForms<layer_norm_kind, half> = std::to_array<forward_form>({
    {"four rows a block",        257,   512, 16,  1, 48, weights::early, 4},
    {"one warp",                 513,  1024, 32,  2, 80, weights::early},
    {"all other rows",          1025, 16384, 32, 16, 64},
    {"unaligned rows",           257,  8192, 32,  8, 80, weights::late, 1, when::always, false},
});
template <>
inline constexpr auto kForwardForms<layer_norm_kind, float> = std::to_array<forward_form>({
    {"all rows",                 257, 16384, 16, 32, 64},
});

inline constexpr auto kRmsForms = std::to_array<forward_form>({
    {"four rows a block",        257,   512, 16,  8, 40, weights::early, 4},
    {"medium rows",             1024,  2048, 16,  8, 40, weights::early, 4},
    {"all other rows",           513, 16384, 32, 16, 64, weights::early},
    {"unaligned rows",           257,  8192, 32,  8, 80, weights::late, 1, when::always, false},
});
template <>
inline constexpr auto kForwardForms<rms_norm_kind, float> = std::to_array<forward_form>({
    {"all rows",                 257, 16384, 16, 32, 64},
});

// Dropout's generator takes registers: long rows with it are faster with 32 elements a lane
// (16384 × 4096, H200, bf16: 138 µs, and 149 with 16).
inline constexpr auto kAddForms = std::to_array<forward_form>({
    {"short rows",               257,  2048, 16,  8, 64, weights::early},
    {"medium rows",             2049,  4096, 16,  8, 64, weights::early, 1, when::nothing_dropped},
    {"long rows",               2049, 24576, 32, 24, 80},
    {"unaligned rows",           257,  8192, 32,  8, 128, weights::late, 1, when::always, false},
});
inline constexpr auto kAddFormsOfHalf = std::to_array<forward_form>({
    {"all rows",                 257, 24576, 32, 24, 80},
    {"unaligned rows",           257,  8192, 32,  8, 128, weights::late, 1, when::always, false},
});
inline constexpr auto kAddFormsOfFloat = std::to_array<forward_form>({
    {"short rows",               257,  2048, 16,  8, 96, weights::early},
    {"medium rows",             2049,  4096, 16,  8, 96, weights::early, 1, when::nothing_dropped},
    {"long rows",               2049, 16384, 32, 16, 128},
});

// Parameters in float beside 16 bits, and none.
inline constexpr auto kOtherLayerForms = std::to_array<forward_form>({
    {"four rows a block",        257,   512, 16,  1, 64, weights::late, 4},
    {"one warp",                 769,  1024, 32,  2, 80},
    {"one or two warps",         513,  1536, 24,  2, 64},
    {"long rows",               1537, 16384, 32, 16, 64},
});
inline constexpr auto kOtherRmsForms = std::to_array<forward_form>({
    {"short rows",               257,  2048, 16,  8, 48, weights::late, 4},
    {"long rows",               2049, 16384, 32, 16, 64},
});
inline constexpr auto kOtherAddForms = std::to_array<forward_form>({
    {"short rows",               257,  2048, 16,  8, 64},
    {"medium rows",             2049,  4096, 16,  8, 64, weights::late, 1, when::nothing_dropped},
    {"long rows",               2049, 24576, 32, 24, 80},
});
// A residual in float beside 16 bits; parameters in 16 bits, and in float.
inline constexpr auto kFloatResidualForms = kAddFormsOfFloat;
inline constexpr auto kAllFloatButXForms = std::to_array<forward_form>({
    {"short rows",               257,  2048, 16,  8, 96},
    {"medium rows",             2049,  4096, 16,  8, 96, weights::late, 1, when::nothing_dropped},
    {"long rows",               2049, 16384, 32, 16, 128},
});
// clang-format on

template <>
inline constexpr auto kForwardForms<rms_norm_kind, bf16> = kRmsForms;
template <>
inline constexpr auto kForwardForms<rms_norm_kind, half> = kRmsForms;
template <>
inline constexpr auto kForwardForms<add_layer_norm_kind, bf16> = kAddForms;
template <>
inline constexpr auto kForwardForms<add_rms_norm_kind, bf16> = kAddForms;
template <>
inline constexpr auto kForwardForms<add_layer_norm_kind, half> = kAddFormsOfHalf;
template <>
inline constexpr auto kForwardForms<add_rms_norm_kind, half> = kAddFormsOfHalf;
template <>
inline constexpr auto kForwardForms<add_layer_norm_kind, float> = kAddFormsOfFloat;
template <>
inline constexpr auto kForwardForms<add_rms_norm_kind, float> = kAddFormsOfFloat;

template <kittens::half_width T>
inline constexpr auto kForwardForms<layer_norm_kind, T, float> = kOtherLayerForms;
template <kittens::half_width T>
inline constexpr auto kForwardForms<layer_norm_kind, T, void> = kOtherLayerForms;
template <kittens::half_width T>
inline constexpr auto kForwardForms<rms_norm_kind, T, float> = kOtherRmsForms;
template <kittens::half_width T>
inline constexpr auto kForwardForms<rms_norm_kind, T, void> = kOtherRmsForms;
template <kittens::half_width T>
inline constexpr auto kForwardForms<add_layer_norm_kind, T, float> = kOtherAddForms;
template <kittens::half_width T>
inline constexpr auto kForwardForms<add_rms_norm_kind, T, float> = kOtherAddForms;
template <kittens::half_width T>
inline constexpr auto kForwardForms<add_layer_norm_kind, T, T, float> = kFloatResidualForms;
template <kittens::half_width T>
inline constexpr auto kForwardForms<add_rms_norm_kind, T, T, float> = kFloatResidualForms;
template <kittens::half_width T>
inline constexpr auto kForwardForms<add_layer_norm_kind, T, float, float> = kAllFloatButXForms;
template <kittens::half_width T>
inline constexpr auto kForwardForms<add_rms_norm_kind, T, float, float> = kAllFloatButXForms;

// Which of the other kernels a kind and element type have of their own, for aligned rows.
struct norm_kernel_set {
  bool narrow;     // norm_forward_narrow, norm_backward_narrow: up to 256 columns
  bool few;        // norm_backward_few: all gradients of few rows in one launch
  bool medium;     // norm_backward_medium: as is_medium says
  bool pipelined;  // norm_backward_pipelined: of more than kPipelinedAbove columns
  bool barrier;    // norm_backward: all others
  bool long_rows;  // norm_forward_long, norm_backward_long_…
  bool unaligned;  // few and barrier for unaligned rows, too, one element an access

  constexpr norm_kernel_set of_run(int run) const {
    if (run > 1) return *this;
    return {.few = unaligned, .barrier = unaligned};
  }
};

// Longer rows than this are worth their second reading from shared memory, as long as the slots of
// all blocks of a multiprocessor leave room for the weights in its first-level cache: of 256
// KB, 64.
inline constexpr int64_t kPipelinedAbove = 2048, kPipelinedBytes = 192 * 1024;

// Rows of more than a warp, whose last warp has lanes without columns; and many for each of the
// backward's groups. (H100, bf16, add_layer_norm: 8192 × 768, 8 rows a group, 25.2 µs and 26.6;
// 65536 × 768 152.9 and 142.4; 16384 × 1152, 31 rows a group, 68.1 and 59.6; 16384 × 1024 51.7 and
// 53.4.)
inline constexpr int64_t kMediumBelow = 2048, kMediumRows = 16;  // rows of a group, at least
inline bool is_medium(const norm_backward_params& p) {
  constexpr int64_t kColumns = norm_backward_shape::kWarpColumns;
  return kColumns < p.width && p.width < kMediumBelow && p.width % kColumns != 0 &&
         p.rows >= kMediumRows * norm_backward_shape::of(p.width).groups * p.partial_rows;
}

// R: element type of what was added.
template <class Kind, class T, class R = T>
inline constexpr norm_kernel_set kKernelSet = {};
template <class Kind, kittens::half_width T>
inline constexpr norm_kernel_set kKernelSet<Kind, T, T> = {.narrow = !Kind::adds,
                                                           .few = true,
                                                           .medium = true,
                                                           .pipelined = true,
                                                           .barrier = true,
                                                           .long_rows = std::is_same_v<T, bf16>,
                                                           .unaligned = !Kind::adds};
template <class Kind>
inline constexpr norm_kernel_set kKernelSet<Kind, float, float> = {
    .narrow = !Kind::adds, .pipelined = true, .barrier = true};
template <class Kind, kittens::half_width T>
  requires Kind::adds
inline constexpr norm_kernel_set kKernelSet<Kind, T, float> = {
    .few = true, .pipelined = true, .barrier = true};

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
