#include "sim/race/advice.hpp"

#include <cstring>

namespace kittens::sim::race {
namespace {

bool starts_with(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

std::string barrier_of(const actor& a, const actor& b) {
  if (a.rank != b.rank) {
    return "cluster_sync(); or mbarrier_arrive_cluster by the one and mbarrier_wait_cluster by the "
           "other: an arrival without _cluster shows the other block nothing that was written";
  }
  return "a barrier between the two: sync_block(), a named one, or sync_warp() within a warp";
}

std::string completion_of(const actor& load) {
  return "the mbarrier at offset " + std::to_string(load.barrier) + ", where that copy completes";
}

std::string between(const actor& a, const actor& b) {
  using enum actor_kind;
  if (a.kind == load || b.kind == load) {
    const actor& copy = a.kind == load ? a : b;
    const actor& other = a.kind == load ? b : a;
    const std::string first = "whoever reads what the copy brings waits for " +
                              completion_of(copy) + ", and for the right phase of it";
    const std::string refill =
        "; whoever starts the copy waits first for an arrival of those who "
        "used the memory before";
    if (other.kind == product) return first + refill + ", which stands behind their wgmma_wait";
    if (other.kind == store) return first + refill + ", behind their bulk_wait_read";
    if (other.kind == load) return first + refill;
    return first + refill + ", behind the accesses of all of them";
  }
  if (a.kind == store || b.kind == store) {
    return "a barrier between the last write and the copy out of shared memory; or, before the "
           "memory is written again, bulk_wait_read by the thread that started the copy and then a "
           "barrier";
  }
  if (a.kind == copy || b.kind == copy) {
    return "cp_async_wait by the thread that copies, then a barrier, before the copy is used; a "
           "barrier before it starts, where others used the memory";
  }
  if (a.kind == product || b.kind == product) {
    return "fence_async_proxy and a barrier of all that write, before the product; or, before the "
           "memory is written again, wgmma_wait by every warp of the product and then a barrier";
  }
  return barrier_of(a, b);
}

}  // namespace

std::string advice(const finding& f, const side& earlier, const side& later) {
  switch (f.kind) {
    case finding_kind::no_fence:
      if (!f.earlier.wrote) {
        return "fence_async_proxy() by each thread that reads, behind its reads and before the "
               "barrier or arrival that lets the asynchronous copy start: one thread's fence does "
               "not wait for the others' loads";
      }
      return "fence_async_proxy() by the threads that write, behind the writes and before the "
             "barrier that lets the asynchronous copy or product start";
    case finding_kind::unwritten:
      return later.by.kind == actor_kind::thread
                 ? "the write that fills it, or the wait for the copy that does"
                 : "the wait for the copy that fills it, before this starts";
    case finding_kind::accumulator: return "wgmma_wait, before the registers are used";
    case finding_kind::exit:
      return "cluster_sync() at the end, so that no block ends before the others have done with "
             "its shared memory";
    case finding_kind::unordered: break;
  }
  if (starts_with(earlier.where.name, "mbarrier_init") ||
      starts_with(later.where.name, "mbarrier_init")) {
    return later.by.asker_rank != f.rank || earlier.by.asker_rank != f.rank
               ? "cluster_sync() between mbarrier_init and the first use by another block"
               : "sync_block() between mbarrier_init and the first use by another thread";
  }
  if (starts_with(earlier.where.name, "mbarrier") || starts_with(later.where.name, "mbarrier")) {
    return "a barrier between the last use of the mbarrier and the other use of its memory";
  }
  return between(earlier.by, later.by);
}

}  // namespace kittens::sim::race
