// States that a step updates in place: that of batch b is states[b], or states[indices[b]].
#pragma once

#include <string_view>

#include "binding/tensors.h"

namespace thunderkittens {

// Raises unless there are indices, or as many states as `x` has rows, whose name is `name`.
void check_states(std::string_view op, std::string_view name, const Tensor& x, const Tensor& states,
                  const optional_tensor& indices);

// Those of some indices, in ATen's ops, without a word from the device. An index that is of no
// state is a padding slot's.
class indexed_states {
 public:
  // At least one state and one index.
  indexed_states(const Tensor& states, const Tensor& indices);

  // [batch, …]; a padding slot's is any.
  Tensor values() const { return states_.index_select(0, slots_); }
  void update(const Tensor& next) const;
  // `rows`, [batch, …], with zeros in those of padding.
  Tensor without_padding(const Tensor& rows) const;

 private:
  // [batch] as it spreads over `t`.
  static Tensor over(const Tensor& flags, const Tensor& t);

  Tensor states_, is_state_, slots_;
};

}  // namespace thunderkittens
