// attention, forward:  s = scale · q kᵀ, masked;  o = softmax(s) v;  lse = log Σ exp(s).
//
//   q [B, Sq, Hq, D], k [B, Sk, Hk, D], v [B, Sk, Hk, Dv] → o [B, Sq, Hq, Dv], lse [B, Hq, Sq]
//
// Query head h reads key head h / (Hq / Hk). Row i sees the keys from i + Sk − Sq − left to
// i + Sk − Sq + right. A row that sees none gives o = 0 and lse = −inf. Packed sequences, q [Tq,
// Hq, D], k and v [Tk, Hk, D], have Sq and Sk of their own. With a softcap, s is softcap ·
// tanh(scale · q kᵀ / softcap). A sink is one more logit of a head's rows, without value: it counts
// in lse and in what o is divided by.
//
// A block works on tiles of 64 rows for each of its consumer warpgroups, one (rows, head, batch)
// after the other:
//
//   producer    one thread: chooses the tile; its q, then its blocks of keys and values, last first
//   consumers   one warpgroup each for 64 rows: s = q kᵀ, softmax in registers, o += p v
//
// Synchronisation, with the arrivals that a phase needs:
//
//   q_ring, k_ring, v_ring   full: 1 + bytes, empty: consumers. A stage of q, full, also says which
//                            tile it is of; it is empty again when o, which takes its place, has
//                            been stored
//   overflow_checked         consumer warps → producer: the overflow flags of the tile, which say
//                            whether it has to be done again. One for even tiles, one for odd: a
//                            consumer may be a tile ahead of another
//   ordered_barrier          named barriers of two warpgroups: whose products are computed now. All
//                            consumers take equally many turns in a tile
//
// Timeline of a consumer. Its softmax runs while the tensor cores work on its own p v and on the
// other consumers' products, which the ordered barrier keeps apart:
//
//   s(0)  softmax(0) | s(1) o(0) | softmax(1) | s(2) o(1) | softmax(2) | …  o(n − 1) | o / l, store
//
// The softmax of one block is computed in one of two ways. In units of log₂, p = exp2(s − m):
//
//   online maximum    m is the running maximum of each row, and what is there already is rescaled
//                     with it. No exponent is above 0, but for the rounding of m.
//   fixed reference   m stays as it is: no maximum, no rescaling. Allowed once m is a maximum over
//                     some visible keys of each row: for blocks that all rows see whole, and then,
//                     masked, for those at a window's left edge. bf16 has float's exponents, so p
//                     may be far above 1 without loss; a row whose sum grows large is rescaled then
//                     (`rescale_if_large`).
//
// Of a tile's first block, on the diagonal, half of the consumers see the first half of the keys
// alone, and of a window's last block the second half: then half of the product is computed.
//
// Rounding: p is rounded to the type of v for the product. Where v has up to 128 columns (and q up
// to 192: attention_configs.cuh), o is divided by the sum of the rounded p, which a column of ones
// beside v gives in the same product: what rounding does to a dominating key cancels. Above, it is
// divided by l, the sum of p before rounding, in float, which lse takes too; calls that want no lse
// have a kernel without l where they can, because a short tile's time is also that of fetching its
// code.
//
// Narrow heads: of k and v, copies bring the columns that there are. A tile's others are set once,
// to zeros and ones. (q's come with zeros, for o has stood in their place.)
//
// Overflow: should the scores of a row rise by more than 127 within one block of the fixed
// reference, its p, sum or o overflow. Each row is checked at its tile's end; the producer
// schedules a tile once more if one of its flags is set, the online maximum is taken for all of it,
// and the rows that had overflowed are stored again. So a row's bits never depend on its
// neighbours.
//
// Far rows: p is right relative to a rounded m as long as the largest p stays near 1, that is up to
// |m| = 2²⁴. Beyond, online steps subtract the maximum from s first, p = exp2((s − max) · scale ·
// log₂e), which holds for every finite s; fixed steps do not know such rows, which count as
// overflowed.
//
// Source: Dao et al., FlashAttention-2 (2023); Shah et al., FlashAttention-3 (2024), section 3.
#pragma once

#include "kernels/attention/attention_consumer.cuh"
#include "kernels/attention/attention_producer.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    attention_forward(const __grid_constant__ attention_forward_arguments<Config> p) {
  auto& s = *reinterpret_cast<attention_forward_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    for (semaphore& checked : s.overflow_checked) init_semaphore(checked, 4 * Config::consumers);
    s.q_ring.init(Config::consumers);
    s.k_ring.init(Config::consumers);
    s.v_ring.init(Config::consumers);
  }
  // What no copy brings: the columns of ones, and those behind a narrower head's last one.
  using block = group<Config::threads / 32>;
  if constexpr (Config::fixed_reference) {
    for (auto& v : s.v) block::set_ones(v);
  }
  if (p.k.columns < Config::head_dim || p.v.columns < Config::value_dim) {
#pragma unroll 1
    for (int i = 0; i < Config::stages; ++i) {
      block::fill_columns(s.k[i], p.k.columns, Config::head_dim, 0.0f);
      block::fill_columns(Config::values(s.v[i]), p.v.columns, Config::value_dim, 0.0f);
    }
  }
  arch::sync_block();
  const int group = warpgroupid();
  if (group == 0) {
    warpgroup::lower_registers<Config::producer_registers>();
    if (arch::warp_id() == 0 && arch::elect_one()) {
      if (p.sequences != kNotPacked) {
        attention_producer(p, s, packed_walk<Config>(p)).produce();
      } else {
        attention_producer(p, s, dense_walk<Config>(p)).produce();
      }
    }
  } else {
    warpgroup::raise_registers<Config::consumer_registers>();
    attention_consumer<Config>(p, s, group - 1).consume();
  }
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
