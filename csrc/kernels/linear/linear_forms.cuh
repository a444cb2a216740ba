// linear, the generic kernel: how its blocks are made up: data.
#pragma once

#include <kittens.cuh>

#include "kernels/linear/linear_weights.cuh"
#include "kittens/host/device.h"

namespace thunderkittens::linear_kernels::inline KITTENS_TARGET {

struct linear_form {
  int shared_kb;  // that a block may have, at least
  int tiles;      // of a pass: 16 rows of the weight each
  int warps, stages;
  int blocks;  // of a multiprocessor: one, or as many as have room
};

// In the order in which they are preferred. Of the last one two blocks fit on a multiprocessor of
// sm_80, and one everywhere.
//
// A quantized weight is converted before it is multiplied, which takes as long as memory takes to
// bring it: so there are more warps where there is room for their rings, and more tiles of e4m3,
// which share the x of a step.
// clang-format off
inline constexpr linear_form kPlainForms[] = {
    // shared_kb tiles warps stages blocks
    {          0,    2,    4,     6,     2},
};
inline constexpr linear_form kE4m3Forms[] = {
    {        227,    4,   12,     2,     1},  // sm_90a, sm_100, sm_103
    {          0,    2,    4,     6,     2},
};
inline constexpr linear_form kInt4Forms[] = {
    {        227,    2,   12,     3,     1},
    {          0,    2,    4,     6,     2},
};
// clang-format on

template <class Weight>
constexpr const linear_form& linear_form_of(int shared_kb) {
  const linear_form* form = kPlainForms;
  if constexpr (Weight::kQuantized) form = Weight::kGrouped ? kInt4Forms : kE4m3Forms;
  while (form->shared_kb > shared_kb) ++form;
  return *form;
}

// What a block may have, by the architecture.
inline constexpr int kLinearSharedKb =
    host::facts_of(host::architecture::KITTENS_TARGET).block_shared_kb;

}  // namespace thunderkittens::linear_kernels::inline KITTENS_TARGET
