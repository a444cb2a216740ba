// attention, backward.
#pragma once

#include "kernels/attention/attention_backward_consumer.cuh"
#include "kernels/attention/attention_backward_producer.cuh"
#include "kernels/attention/attention_backward_rows.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    attention_backward(const __grid_constant__ attention_backward_arguments<Config> p) {
  begin_dependent_grid();
  auto& s = *reinterpret_cast<attention_backward_shared<Config>*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) {
    constexpr int kWarps = 4 * Config::consumers;
    s.kv_ring.init(Config::consumers);
    s.row_ring.init(kWarps);
    s.ds_ring.init(Config::consumers, kWarps);
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
    if (group == 1) {
      attention_backward_consumer<Config, 0>(p, s).consume();
    } else {
      attention_backward_consumer<Config, 1>(p, s).consume();
    }
  }
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
