// The shared memory of a cluster's other blocks.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "sim/block.hpp"
#include "sim/bulk_api.hpp"
#include "sim/bulk_copy.hpp"
#include "sim/cluster_api.hpp"
#include "sim/race/race.hpp"

namespace kittens::sim {
namespace {

constexpr int64_t kBulkAlignment = 16;

block& find_peer(const char* name, int block_rank, call_site site) {
  block& mine = block::running();
  cluster& all = mine.in_cluster();
  if (block_rank < 0 || block_rank >= all.size()) {
    mine.fail("CLUSTER", site, "%s by thread %d: rank %d is not in the cluster of %d blocks", name,
              self->thread, block_rank, all.size());
  }
  if (all.size() > 1 && !all.barrier().was_passed()) {
    mine.fail("CLUSTER", site,
              "%s by thread %d before the cluster's first barrier: rank %d may not run yet", name,
              self->thread, block_rank);
  }
  block& peer = all.block_at(block_rank);
  if (peer.alive() == 0) {
    mine.fail("CLUSTER", site,
              "%s by thread %d: all threads of rank %d have exited, and its shared memory with "
              "them",
              name, self->thread, block_rank);
  }
  return peer;
}

}  // namespace

void* map_shared(const char* name, const void* p, int64_t bytes, int block_rank, call_site site) {
  check_shared(name, p, bytes, site);
  const auto offset = static_cast<const uint8_t*>(p) - self->shared;
  return find_peer(name, block_rank, site).shared() + offset;
}

void bulk_copy_cluster(void* dst, int block_rank, const void* src, int bytes, void* full,
                       call_site site) {
  constexpr const char* kName = "bulk_copy_cluster";
  KITTENS_RACE_CALL(kName, site);
  block& mine = block::running();
  if (bytes < 0 || bytes % kBulkAlignment != 0) {
    mine.fail("BULK COPY", site, "%s by thread %d: bytes must be a multiple of %d, got %d", kName,
              self->thread, static_cast<int>(kBulkAlignment), bytes);
  }
  if (mine.in_cluster().size() == 1) {  // an illegal instruction there, on an H200
    mine.fail("CLUSTER", site, "%s by thread %d needs a launch with clusters of 2 blocks or more",
              kName, self->thread);
  }
  check_shared_range(kName, dst, bytes, kBulkAlignment, site);
  check_shared_range(kName, src, bytes, kBulkAlignment, site);
  find_peer(kName, block_rank, site);
  std::vector<copy_target> targets = find_targets(kName, dst, full, 1u << block_rank, site);
  const auto* from_here = static_cast<const uint8_t*>(src);
  // The copy reads this block's memory as long as it is under way.
  const auto reading = std::make_shared<copy_origin>(copy_origin::here(kName, site));
  reading->reads = true;
  mine.await_copy(reading.get(), *reading);
  start_load(copy_origin::here(kName, site), std::move(targets), bytes,
             {[bytes](uint8_t* to) { poison(to, bytes); },
              [from_here, bytes, reading](const copy_origin& from, uint8_t* to) {
                std::memcpy(to, from_here, bytes);
                from.by->forget_copy(reading.get());
              },
              [bytes](const uint8_t* at, const auto& f) { f(at, bytes); }, from_here, bytes});
}

}  // namespace kittens::sim
