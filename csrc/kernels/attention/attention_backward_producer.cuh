// attention, backward: the producer. It chooses the tiles, brings what they read.
// (attention_backward.cuh)
#pragma once

#include "kernels/attention/attention_backward_tile.cuh"

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

template <class Config>
class attention_backward_producer {
 public:
  KITTENS_DEVICE attention_backward_producer(const attention_backward_arguments<Config>& p,
                                             attention_backward_shared<Config>& shared)
      : p(p), shared(shared), walk(p.tiles) {}

  // One thread.
  KITTENS_DEVICE void produce() {
    for (; walk.valid(); walk.next()) {
      const attention_backward_tile tile =
          p.template tile_at<Config::keys, Config::rows>(walk.place());
      if (tile.n * Config::keys < tile.keys) load(tile);  // else a number of no block
    }
    shared.kv_ring.wait_empty(kv_at);
    // All of it: the consumers read all.
    shared.tile[kv_at.stage] = attention_backward_tile{.n = attention_backward_tile::kEnd};
    arrive(shared.kv_ring.full[kv_at.stage]);
  }

 private:
  const attention_backward_arguments<Config>& p;
  attention_backward_shared<Config>& shared;
  tile_walk walk;
  cursor<Config::kv_stages> kv_at;
  cursor<Config::stages> at;

  KITTENS_DEVICE void load(const attention_backward_tile& tile) {
    shared.kv_ring.wait_empty(kv_at);
    shared.tile[kv_at.stage] = tile;
    semaphore& full = shared.kv_ring.full[kv_at.stage];
    shared.kv_ring.expect(kv_at, sizeof(shared.k[0]) + sizeof(shared.v[0]));
    const sequence_origin keys = p.k_origin(tile, p.k_step), values = p.k_origin(tile, p.v_step),
                          queries = p.q_origin(tile);
    const int first_row = p.q_first(tile);
    for (int w = 0; w < Config::key_tiles; ++w) {
      const int row = tile.n * Config::keys + w * 64;
      tma::load_async(shared.k[kv_at.stage][w], p.k, full, keys, row, tile.key_head);
      tma::load_async(shared.v[kv_at.stage][w], p.v, full, values, row, tile.key_head);
    }
    kv_at.advance();
    for (query_blocks_walk<Config> of(p, tile); of.left > 0; of.next(), at.advance()) {
      constexpr int kRecord = sizeof(shared.row_block[0]);
      constexpr int kFactors = Config::adds_dq ? sizeof(shared.dq_factors[0]) : 0;
      semaphore& rows_full = shared.row_ring.full[at.stage];
      shared.row_ring.wait_empty(at);
      shared.row_ring.expect(at, sizeof(shared.q[0]) + sizeof(shared.d_o[0]) + kRecord + kFactors);
      const int row = first_row + of.m * Config::rows;
      tma::load_async(shared.q[at.stage], p.q, rows_full, queries, row, of.head);
      arch::bulk_load(&shared.row_block[at.stage], p.row_blocks + of.block, kRecord,
                      &rows_full.barrier);
      if constexpr (Config::adds_dq) {
        arch::bulk_load(&shared.dq_factors[at.stage], p.dq_factors + of.block * Config::rows,
                        kFactors, &rows_full.barrier);
      }
      tma::load_async(shared.d_o[at.stage], p.d_o, rows_full, queries, row, of.head);
    }
  }
};

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
