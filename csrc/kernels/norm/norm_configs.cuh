// Which kernels the norms have, and which rows each takes: data, from which norm_launch.cuh makes
// the kernels and chooses among them. Figures behind the choices: benchmarks/layer_norm.md,
// rms_norm.md and add_norm.md.
//
// These are for vectors of one element type: x, residual and parameters. All else (mixed types, no
// weight, unaligned rows, rows longer than here) is for the kernels of any_element.cuh.
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

// Those of a kind and element type. The first that takes a row is launched.
template <class Kind, class T>
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
    {"all other rows",           513, 16384, 32, 16, 64},
});
template <>
inline constexpr auto kForwardForms<layer_norm_kind, float> = std::to_array<forward_form>({
    {"all rows",                 257, 16384, 16, 32, 64},
});

template <>
inline constexpr auto kForwardForms<rms_norm_kind, bf16> = std::to_array<forward_form>({
    {"four rows a block",        257,   512, 16,  8, 40, weights::early, 4},
    {"medium rows",             1024,  2048, 16,  8, 40, weights::early, 4},
    {"all other rows",           513, 16384, 32, 16, 64, weights::early},
});
template <>
inline constexpr auto kForwardForms<rms_norm_kind, half> = std::to_array<forward_form>({
    {"four rows a block",        257,   512, 16,  8, 40, weights::early, 4},
    {"medium rows",             1024,  2048, 16,  8, 40, weights::early, 4},
    {"all other rows",           513, 16384, 32, 16, 64, weights::early},
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
});
inline constexpr auto kAddFormsOfHalf = std::to_array<forward_form>({
    {"all rows",                 257, 24576, 32, 24, 80},
});
// clang-format on
template <>
inline constexpr auto kForwardForms<add_layer_norm_kind, bf16> = kAddForms;
template <>
inline constexpr auto kForwardForms<add_rms_norm_kind, bf16> = kAddForms;
template <>
inline constexpr auto kForwardForms<add_layer_norm_kind, half> = kAddFormsOfHalf;
template <>
inline constexpr auto kForwardForms<add_rms_norm_kind, half> = kAddFormsOfHalf;

// Which of the other kernels a kind and element type have of their own, for aligned rows.
struct norm_kernel_set {
  bool narrow;     // norm_forward_narrow, norm_backward_narrow: up to 256 columns
  bool few;        // norm_backward_few: all gradients of few rows in one launch
  bool pipelined;  // norm_backward_pipelined: of more than kPipelinedAbove columns
  bool barrier;    // norm_backward: all others
  bool unaligned;  // few and barrier for unaligned rows, too, one element an access

  constexpr norm_kernel_set of_run(int run) const {
    if (run > 1) return *this;
    return {.few = unaligned, .barrier = unaligned};
  }
};

// Longer rows than this are worth their second reading from shared memory.
inline constexpr int64_t kPipelinedAbove = 2048;

template <class Kind, class T>
inline constexpr norm_kernel_set kKernelSet = {};
template <class Kind>
inline constexpr norm_kernel_set kKernelSet<Kind, bf16> = {
    .narrow = !Kind::adds,
    .few = true,
    .pipelined = true,
    .barrier = true,
    .unaligned = std::is_same_v<Kind, layer_norm_kind>};
template <class Kind>
inline constexpr norm_kernel_set kKernelSet<Kind, half> = {
    .narrow = !Kind::adds, .few = true, .pipelined = true};
template <>
inline constexpr norm_kernel_set kKernelSet<layer_norm_kind, float> = {.barrier = true};

}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
