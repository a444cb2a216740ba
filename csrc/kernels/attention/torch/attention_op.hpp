// What attention and attention_qkvpacked have in common as torch ops. Torch, unlike attention.h.
#pragma once

#include "binding/autograd.h"
#include "binding/by_name.h"
#include "binding/launch.h"
#include "binding/op.h"
#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {

// What serves a call.
struct attention_choice {
  attention_forward_problem problem;
  decision d;

  explicit attention_choice(const attention_call& c);
};

// o and lse, which is undefined where it is not wanted: as the call was chosen to be computed, or
// with nothing in them.
tensor_array<2> attention_as_chosen(const attention_choice& chosen, const attention_call& c);
tensor_array<2> empty_attention(const attention_call& c);
// Whether there is nothing to compute, and nothing to choose.
bool has_no_rows(const attention_call& c);
// Of a tensor that Python computes with by itself, as DTensor: it knows the op, not its parts.
bool is_subclass(const Tensor& t);
// Of torch.compile's stand-ins: whether a kernel could serve the call, so that it runs as one op
// with its backward behind it. The choice is made when the code runs.
bool may_be_served(const attention_call& c);

// Op::call_of makes an attention_call of arguments.
template <class Op>
struct attention_op {
  static constexpr autocast_rule autocast = autocast_rule::cast;
  static constexpr size_t kReturned = 1;
  static constexpr bool kPlainForward = true;

  static tensor_array<2> meta(const auto&... args) { return empty_attention(Op::call_of(args...)); }

  static tensor_array<2> compute(bool wants_lse, const auto&... args) {
    attention_call c = Op::call_of(args...);
    c.wants_lse = wants_lse;
    return has_no_rows(c) ? empty_attention(c) : attention_as_chosen(attention_choice(c), c);
  }

  static tensor_array<2> record(const call_to_record& call, const auto&... args) {
    if (is_subclass(first_of(args...))) return thunderkittens::record<Op>(call, args...);
    attention_call c = [&] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return Op::call_of(args...);
    }();
    c.wants_lse = call.all;
    if (may_be_served(c)) return thunderkittens::record<Op>(call, args...);
    const attention_choice chosen(c);
    if (chosen.d.on == nullptr) {
      c = Op::call_of(args...);  // of parts that have a gradient
      c.wants_lse = call.all;
      const auto [o, lse] = attention_by_aten(c);
      differentiate_without_autocast({o, lse}, {c.q, c.k, c.v, c.sinks.value_or(Tensor())});
      return {o, lse};
    }
    if (!call.plain) return thunderkittens::record<Op>(call, args...);
    c.wants_lse = true;
    return record_as<Op>(call, [&] { return attention_as_chosen(chosen, c); }, args...);
  }
};

// Raises unless what says which keys a sequence has goes together.
template <class Op>
void check_sequences(const auto&... args) {
  const auto given = by_name<Op>(args...);
  const bool seqused = given("seqused_k"_name).has_value();
  const bool bounded = seqused || given("leftpad_k"_name);
  TORCH_CHECK_VALUE(!bounded || !is_packed<Op>(args...), Op::name, ": ",
                    seqused ? "seqused_k" : "leftpad_k",
                    " must be None with cu_seqlens, which say which keys a packed sequence has; "
                    "got a tensor");
}

// The last arguments of all ops but those that say how sequences are packed.
inline constexpr argument_list kOptions{
    optional(integer("window_left", 0)).otherwise("None").by_name(),
    optional(integer("window_right", 0)).otherwise("None"),
    number("softcap", 0.0).otherwise("0.0"),
    optional(tensor("seqused_k", dtype_rule::index, "B")).otherwise("None"),
    optional(tensor("leftpad_k", dtype_rule::index, "B")).otherwise("None"),
};

}  // namespace thunderkittens
