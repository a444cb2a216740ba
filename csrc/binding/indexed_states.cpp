#include "binding/indexed_states.h"

#include <ATen/ATen.h>

namespace thunderkittens {

void check_states(std::string_view op, std::string_view name, const Tensor& x, const Tensor& states,
                  const optional_tensor& indices) {
  const c10::SymInt batch = x.sym_size(0);
  TORCH_CHECK_VALUE(indices || states.sym_size(0).sym_eq(batch).expect_true(__FILE__, __LINE__), op,
                    ": state.size(0) must be ", name, ".size(0) = ", batch,
                    " without state_indices, got ", states.sym_size(0));
}

indexed_states::indexed_states(const Tensor& states, const Tensor& indices) : states_(states) {
  const Tensor wide = indices.to(at::kLong);
  is_state_ = wide.ge(0).logical_and_(wide.lt(states.size(0)));
  slots_ = wide.clamp(0, states.size(0) - 1);
}

// A padding slot writes what a state's index writes, or, where there is none, what is there.
void indexed_states::update(const Tensor& next) const {
  const Tensor some = is_state_.to(at::kInt).argmax(0),
               source = at::where(is_state_, at::arange(slots_.size(0), slots_.options()), some);
  states_.index_copy_(0, slots_.index_select(0, source),
                      at::where(over(is_state_, next), next, values()).index_select(0, source));
}

Tensor indexed_states::without_padding(const Tensor& rows) const {
  return rows.masked_fill(over(is_state_.logical_not(), rows), 0);
}

Tensor indexed_states::over(const Tensor& flags, const Tensor& t) {
  at::DimVector sizes(t.dim(), 1);
  sizes[0] = flags.size(0);
  return flags.view(sizes);
}

}  // namespace thunderkittens
