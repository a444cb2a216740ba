// What the ops of attention accept: their tables of arguments, and what goes together.
#include <torch/library.h>

#include "binding/by_hand.h"
#include "kernels/attention/torch/attention_call.hpp"

namespace thunderkittens {
namespace {

constexpr arguments kDenseArguments({
    tensor("q", dtype_rule::floating, "B,Sq,Hq,D"),
    tensor("k", dtype_rule::same, "B,Sk,Hk,D"),
    tensor("v", dtype_rule::same, "B,Sk,Hk,Dv"),
    boolean("causal"),
    optional(number("scale")),
    optional(integer("window_left", 0)),
    optional(integer("window_right", 0)),
    number("softcap", 0.0),
    optional(tensor("sinks", dtype_rule::same_or_float32, "Hq")),
});
constexpr arguments kPackedArguments({
    tensor("q", dtype_rule::floating, "Tq,Hq,D"),
    tensor("k", dtype_rule::same, "Tk,Hk,D"),
    tensor("v", dtype_rule::same, "Tk,Hk,Dv"),
    boolean("causal"),
    optional(number("scale")),
    optional(integer("window_left", 0)),
    optional(integer("window_right", 0)),
    number("softcap", 0.0),
    optional(tensor("sinks", dtype_rule::same_or_float32, "Hq")),
    tensor("cu_seqlens_q", dtype_rule::index, "B1"),
    tensor("cu_seqlens_k", dtype_rule::index, "B1"),
    integer("max_seqlen_q", 0),
    integer("max_seqlen_k", 0),
});
constexpr arguments kBackwardArguments({
    tensor("dout", dtype_rule::floating, "B,Sq,Hq,Dv"),
    optional(tensor("dlse", dtype_rule::statistics, "B,Hq,Sq")),
    tensor("q", dtype_rule::same, "B,Sq,Hq,D"),
    tensor("k", dtype_rule::same, "B,Sk,Hk,D"),
    tensor("v", dtype_rule::same, "B,Sk,Hk,Dv"),
    tensor("o", dtype_rule::same, "B,Sq,Hq,Dv"),
    tensor("lse", dtype_rule::statistics, "B,Hq,Sq"),
    boolean("causal"),
    optional(number("scale")),
    optional(integer("window_left", 0)),
    optional(integer("window_right", 0)),
    number("softcap", 0.0),
    optional(tensor("sinks", dtype_rule::same_or_float32, "Hq")),
});
constexpr arguments kPackedBackwardArguments({
    tensor("dout", dtype_rule::floating, "Tq,Hq,Dv"),
    optional(tensor("dlse", dtype_rule::statistics, "Hq,Tq")),
    tensor("q", dtype_rule::same, "Tq,Hq,D"),
    tensor("k", dtype_rule::same, "Tk,Hk,D"),
    tensor("v", dtype_rule::same, "Tk,Hk,Dv"),
    tensor("o", dtype_rule::same, "Tq,Hq,Dv"),
    tensor("lse", dtype_rule::statistics, "Hq,Tq"),
    boolean("causal"),
    optional(number("scale")),
    optional(integer("window_left", 0)),
    optional(integer("window_right", 0)),
    number("softcap", 0.0),
    optional(tensor("sinks", dtype_rule::same_or_float32, "Hq")),
    tensor("cu_seqlens_q", dtype_rule::index, "B1"),
    tensor("cu_seqlens_k", dtype_rule::index, "B1"),
    integer("max_seqlen_q", 0),
    integer("max_seqlen_k", 0),
});
constexpr divisibility kHeads{"Hq", "Hk"};
constexpr argument_table kDenseTable = kDenseArguments.table("attention", "", kHeads);
constexpr argument_table kPackedTable = kPackedArguments.table("attention", "packed", kHeads);
constexpr argument_table kBackwardTable =
    kBackwardArguments.table("attention_backward", "", kHeads);
constexpr argument_table kPackedBackwardTable =
    kPackedBackwardArguments.table("attention_backward", "packed", kHeads);
const enter_arguments enter_dense(kDenseTable), enter_packed(kPackedTable),
    enter_backward(kBackwardTable), enter_packed_backward(kPackedBackwardTable);

// Whether the call is packed. Raises unless what says so is given together.
bool is_packed(std::string_view op, const attention_call& c) {
  const bool packed = c.cu_seqlens_q || c.cu_seqlens_k;
  TORCH_CHECK_VALUE(
      packed || (!c.max_seqlen_q && !c.max_seqlen_k), op,
      ": max_seqlen_q and max_seqlen_k must be None without cu_seqlens, got a number");
  TORCH_CHECK_VALUE(!packed || (c.cu_seqlens_q && c.cu_seqlens_k), op,
                    ": cu_seqlens_q and cu_seqlens_k must be given together, got ",
                    c.cu_seqlens_q ? "cu_seqlens_k" : "cu_seqlens_q", " None");
  TORCH_CHECK_VALUE(!packed || (c.max_seqlen_q && c.max_seqlen_k), op,
                    ": max_seqlen_q and max_seqlen_k must be given with cu_seqlens, got ",
                    c.max_seqlen_q ? "max_seqlen_k" : "max_seqlen_q", " None");
  return packed;
}

void check_some_offset(std::string_view op, const attention_call& c) {
  TORCH_CHECK_VALUE(!TORCH_GUARD_OR_FALSE(c.cu_seqlens_q->sym_numel().sym_eq(0)), op,
                    ": cu_seqlens_q must have shape [sequences + 1], got [0]");
}

}  // namespace

void check_call(const attention_call& c) {
  if (!is_packed(kDenseTable.op, c)) {
    check(kDenseTable,
          {c.q, c.k, c.v, c.causal, c.scale, c.window_left, c.window_right, c.softcap, c.sinks});
    return;
  }
  check(kPackedTable, {c.q, c.k, c.v, c.causal, c.scale, c.window_left, c.window_right, c.softcap,
                       c.sinks, c.cu_seqlens_q, c.cu_seqlens_k, c.max_seqlen_q, c.max_seqlen_k});
  check_some_offset(kPackedTable.op, c);
}

void check_dense_call(const attention_call& c) {
  check_dense(kDenseTable, {c.q, c.k, c.v, c.causal, c.scale, c.window_left, c.window_right,
                            c.softcap, c.sinks});
}

void check_backward(const attention_backward_call& b) {
  const attention_call& c = b.forward;
  if (!is_packed(kBackwardTable.op, c)) {
    check(kBackwardTable, {b.dout, b.dlse, c.q, c.k, c.v, b.o, b.lse, c.causal, c.scale,
                           c.window_left, c.window_right, c.softcap, c.sinks});
    return;
  }
  check(kPackedBackwardTable, {b.dout, b.dlse, c.q, c.k, c.v, b.o, b.lse, c.causal, c.scale,
                               c.window_left, c.window_right, c.softcap, c.sinks, c.cu_seqlens_q,
                               c.cu_seqlens_k, c.max_seqlen_q, c.max_seqlen_k});
  check_some_offset(kPackedBackwardTable.op, c);
}

void check_dense_backward(const attention_backward_call& b) {
  const attention_call& c = b.forward;
  check_dense(kBackwardTable, {b.dout, b.dlse, c.q, c.k, c.v, b.o, b.lse, c.causal, c.scale,
                               c.window_left, c.window_right, c.softcap, c.sinks});
}

}  // namespace thunderkittens
