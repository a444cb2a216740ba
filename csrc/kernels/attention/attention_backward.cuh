// attention, backward: the products. Before them the rows' delta and lse are made ready, after them
// dq is converted (attention_backward_rows_launch.cuh: all kernels, in order).
//
// A tile is 128 keys of a key head (64 of wide heads), whose dk and dv stay in the registers of two
// consumers while the blocks of queries that see them go by, of all the heads that share them:
//
//   sᵀ = k qᵀ, dpᵀ = v doᵀ;  p = exp(scale · s − lse), ds = p ∘ (dp − delta);
//   dv += pᵀ do, dk += dsᵀ q;  dq += ds k, one block later, added up in global memory in integers
//
// Of wide heads, and where rows see few keys, a kernel of its own computes dq
// (attention_backward_dq.cuh; attention_backward_layout chooses).
//
// Persistent blocks, a producer of one thread. To read: attention_backward_tile.cuh (what they
// share), _producer, _consumer, _wide_consumer (head dimensions above 128), _softmax, _add_dq; _dq
// (the kernel of its own); _sequences (where packed ones lie), _bounds and _rows (before and
// after).
#pragma once

#include <type_traits>

#include "kernels/attention/attention_backward_consumer.cuh"
#include "kernels/attention/attention_backward_producer.cuh"
#include "kernels/attention/attention_backward_rows.cuh"
#include "kernels/attention/attention_backward_wide_consumer.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class Config, class Number>
KITTENS_DEVICE void consume_tiles(const attention_backward_arguments<Config>& p,
                                  attention_backward_shared<Config>& shared, Number number) {
  if constexpr (Config::wide) {
    attention_backward_wide_consumer<Config, Number::value>(p, shared).consume();
  } else {
    attention_backward_consumer<Config, Number>(p, shared, number).consume();
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    attention_backward(const __grid_constant__ attention_backward_arguments<Config> p) {
  begin_dependent_grid();
  auto& s = *reinterpret_cast<attention_backward_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    constexpr int kWarps = 4 * Config::consumers;
    s.kv_ring.init(Config::consumers);
    s.row_ring.init(kWarps);
    if constexpr (Config::wide) {
      s.ds_ring.init(1, 4);  // full: of the first consumer's warps; empty: row_ring says so
    } else if constexpr (Config::adds_dq) {
      s.ds_ring.init(Config::consumers, kWarps);
    }
  }
  arch::sync_block();
  const int group = warpgroupid();
  if (group == 0) {
    warpgroup::lower_registers<Config::producer_registers>();
    if (arch::warp_id() == 0 && arch::elect_one()) {
      attention_backward_producer<Config>(p, s).produce();
    }
  } else {
    warpgroup::raise_registers<Config::consumer_registers>();
    if constexpr (Config::shares_code) {
      consume_tiles<Config>(p, s, detail::uniform(group - 1));
    } else if (group == 1) {
      consume_tiles<Config>(p, s, std::integral_constant<int, 0>());
    } else {
      consume_tiles<Config>(p, s, std::integral_constant<int, 1>());
    }
  }
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
