// linear, the generic kernel: how its blocks are made up: data.
#pragma once

#include <kittens.cuh>

#include "kernels/linear/linear_weights.cuh"
#include "kittens/host/device.h"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

struct linear_form {
  int shared_kb;   // that a block may have, at least
  int row_halves;  // of x, 8 rows each: at most
  int tiles;       // of a pass: 16 rows of the weight each
  int warps, stages;
  int blocks;  // of a multiprocessor: one, or as many as have room
};

// In the order in which they are preferred. Of the last one two blocks fit on a multiprocessor of
// sm_80, and one everywhere.
//
// A quantized weight is converted before it is multiplied, which takes as long as memory takes to
// bring it, or longer: so there are many warps where there is room for them, and tiles that share
// the x of a step. Which are the fastest was measured (benchmarks/linear.md).
// clang-format off
inline constexpr linear_form kPlainForms[] = {
    // shared_kb row_halves tiles warps stages blocks
    {          0,         2,    2,    4,     6,     2},
};
inline constexpr linear_form kE4m3Forms[] = {
    {        227,         1,    2,   16,     2,     1},  // sm_90a, sm_100, sm_103
    {        227,         2,    4,   12,     2,     1},
    {          0,         2,    2,    4,     6,     2},
};
inline constexpr linear_form kInt4Forms[] = {
    {        227,         2,    2,   12,     3,     1},
    {          0,         2,    2,    4,     6,     2},
};
inline constexpr linear_form kInt4StepsForms[] = {
    {        227,         1,    4,   12,     2,     1},
    {        227,         2,    4,    8,     2,     1},
    {          0,         2,    2,    4,     6,     2},
};
// clang-format on

template <class Weight>
constexpr const linear_form& linear_form_of(int shared_kb, int row_halves) {
  const linear_form* form = kPlainForms;
  if constexpr (Weight::kQuantized) {
    form = Weight::kScalesSums ? kInt4StepsForms : Weight::kGrouped ? kInt4Forms : kE4m3Forms;
  }
  while (form->shared_kb > shared_kb || form->row_halves < row_halves) ++form;
  return *form;
}

// What a block may have, by the architecture.
inline constexpr int kLinearSharedKb =
    host::facts_of(host::architecture::KITTENS_TARGET).block_shared_kb;

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
