// How vmap maps our ops: one rule, from their descriptions.
//
// Every op treats each of its rows ("*") or each sequence of a batch ("B") by itself. So the mapped
// dimension becomes one more leading dimension, or part of the batch, and one call does for all.
//
// That is not so where a tensor is mapped that all rows share, as a weight; where a wanted result
// is a sum over rows, as the gradient of a weight is, or a reduced loss; where sequences are
// packed; or where a mask of dropout is one for all rows. Then the op is called for one place of
// the mapped dimension after the other, as a Python loop would.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <span>
#include <vector>

#include "binding/describe.h"

namespace thunderkittens {

// A call whose tensors may be mapped at the current level of torch.func's transforms.
struct mapped_call {
  const op_description& op;
  const c10::OperatorHandle& handle;
  std::span<const value> values;  // the arguments, as `stack` has them
  torch::jit::Stack stack;
  bool by_row;             // whether rows or sequences are treated each by itself
  argument_range written;  // in place
};

// How the rule knows the level of the transform that a call has reached: torch's header of it
// includes one that torch does not ship, so Python is asked (thunderkittens/_C.py).
using level_reader = int64_t (*)();
void set_level_reader(level_reader reader);

// Its results, mapped at the same level.
std::vector<at::Tensor> call_mapped(const mapped_call& call);

}  // namespace thunderkittens
