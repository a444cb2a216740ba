// One block of a simulated grid: its shared memory, its barriers, its warps. cluster.hpp tells how
// its threads run.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "sim/api.hpp"
#include "sim/barrier.hpp"
#include "sim/bulk_copy.hpp"
#include "sim/cluster.hpp"
#include "sim/collective.hpp"
#include "sim/mbarrier.hpp"
#include "sim/register_pool.hpp"
#include "sim/wgmma.hpp"

namespace kittens::sim {

class block {
 public:
  block(cluster& in, const position& place, int rank, shared_memory& memory);

  // Makes its shared memory new. Returns what all its threads know.
  thread_view start();
  // The current thread ends.
  void leave_thread();

  // The block of the calling fiber. (Asynchronous work may run beside the fibers of any block:
  // it keeps a reference to its own.)
  static block& running();

  cluster& in_cluster() { return cluster_; }
  scheduler& threads() { return cluster_.threads(); }
  async_work& asynchronous() { return cluster_.asynchronous(); }
  barrier& barrier_at(int id) { return barriers_[id]; }
  warp& current_warp() { return warps_[threads().current().warp()]; }
  warpgroup& current_warpgroup() { return warpgroups_[threads().current().warp() / 4]; }
  register_pool& registers() { return registers_; }
  mbarrier_table& mbarriers() { return mbarriers_; }
  // A copy to this block's shared memory is under way (or from it, if the origin says so), until
  // forgotten. `copy`: its name only.
  void await_copy(const void* copy, const copy_origin& from);
  void forget_copy(const void* copy);

  // A thread of it has fenced for a tensor map in global memory.
  void fence_tensor_map(const void* map) { fenced_maps_.insert(map); }
  bool has_fenced(const void* map) const { return fenced_maps_.count(map) > 0; }

  const position& place() const { return place_; }
  int rank() const { return rank_; }
  int alive() const { return alive_; }  // threads that have not exited
  uint8_t* shared() const { return memory_.base(); }
  int64_t shared_bytes() const { return cluster_.launch().shared_bytes; }

  // Notes what is wrong, and ends the cluster. From inside of a fiber.
  [[noreturn]] [[gnu::format(printf, 4, 5)]] void fail(const char* kind, call_site site,
                                                       const char* format, ...);
  // The same for what was started at `where`, and is found wrong in asynchronous work.
  [[noreturn]] [[gnu::format(printf, 5, 6)]] void fail_at(const char* kind, call_site site,
                                                          const trace& where, const char* format,
                                                          ...);

 private:
  cluster& cluster_;
  const position place_;
  const int rank_;  // in its cluster
  shared_memory& memory_;
  int alive_ = 0;
  std::array<barrier, barrier::kCount> barriers_;
  std::vector<warp> warps_;
  std::vector<warpgroup> warpgroups_;
  register_pool registers_;
  mbarrier_table mbarriers_;
  std::map<const void*, copy_origin> copies_;  // under way to it, or from it
  std::set<const void*> fenced_maps_;
};

// The file of a path.
const char* file_name(const char* path);

}  // namespace kittens::sim
