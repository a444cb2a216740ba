// attention, forward: the producer. It chooses the tiles, and brings what they read.
// (attention_forward.cuh)
#pragma once

#include "kernels/attention/attention_walk.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// Walk: where the tiles come from.
template <class Config, class Walk>
class attention_producer {
 public:
  KITTENS_DEVICE attention_producer(const attention_forward_arguments<Config>& p,
                                    attention_forward_shared<Config>& shared, Walk walk)
      : p(p), shared(shared), walk(walk) {}

  KITTENS_DEVICE void produce() {
    for (;; ++number) {
      const attention_item item = choose();
      shared.q_ring.wait_empty(q_at);
      shared.items[number % 2] = item;
      if (item.tile.m == attention_item::kEnd) {
        arrive(shared.q_ring.full[q_at.stage]);
        return;
      }
      load(item);
    }
  }

 private:
  const attention_forward_arguments<Config>& p;
  attention_forward_shared<Config>& shared;
  Walk walk;
  int number = 0;   // of the item
  int checked = 0;  // items whose overflow flags have been looked at
  cursor<Config::q_stages> q_at;
  cursor<Config::stages> at;

  // The consumers are at work on the item before this one, so those before that one are checked;
  // the last one is waited for when there is nothing else to do.
  KITTENS_DEVICE attention_item choose() {
    if constexpr (Config::fixed_reference) {
      for (; checked < number - (walk.valid() ? 1 : 0); ++checked) {
        if (overflowed(checked)) {
          attention_item again = shared.items[checked % 2];
          again.again = number - checked++;
          return again;
        }
      }
    }
    if (!walk.valid()) return {{attention_item::kEnd, 0, 0, 0, 0, 0, 0}, 0};
    return {walk.tile(), 0};
  }

  KITTENS_DEVICE bool overflowed(int item) {
    wait(shared.overflow_checked[item % 2], item / 2 & 1);
    uint32_t any = 0;
    for (const uint32_t warp : shared.overflowed[item % 2]) any |= warp;
    return any != 0;
  }

  // Goes on to the next tile when the first loads are under way: to find it takes a while.
  KITTENS_DEVICE void load(const attention_item& item) {
    const attention_tile& tile = item.tile;
    bool goes_on = item.again == 0;
    const key_blocks blocks = key_blocks::of<Config>(p, tile, tile.m * Config::rows, Config::rows);
    shared.q_ring.expect(q_at, Config::consumers * tma::bytes<typename Config::q_tile>);
    const sequence_origin queries = p.q_origin(tile), keys = p.k_origin(tile, p.k_step),
                          values_at = p.k_origin(tile, p.v_step);
    for (int w = 0; w < Config::consumers; ++w) {
      tma::load_async(shared.q[q_at.stage][w], p.q, shared.q_ring.full[q_at.stage], queries,
                      tile.m * Config::rows + w * 64, tile.head);
    }
    q_at.advance();
    const int key_head = tile.head / p.heads_per_key;
    for (int j = blocks.end - 1; j >= blocks.first; --j, at.advance()) {
      const int row = j * Config::keys;
      shared.k_ring.wait_empty(at);
      shared.k_ring.expect(at, p.k.bytes());
      tma::load_async(shared.k[at.stage], p.k, shared.k_ring.full[at.stage], keys, row, key_head);
      shared.v_ring.wait_empty(at);
      shared.v_ring.expect(at, p.v.bytes());
      tma::load_async(Config::values(shared.v[at.stage]), p.v, shared.v_ring.full[at.stage],
                      values_at, row, key_head);
      if (goes_on) walk.next();
      goes_on = false;
    }
    if (goes_on) walk.next();
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
