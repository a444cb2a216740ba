#include "sim/block.hpp"

#include <cstdarg>
#include <cstring>

namespace kittens::sim {

const char* file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

block& block::running() { return cluster::running().block_at(self->cluster_rank); }

block::block(cluster& in, const position& place, int rank, shared_memory& memory)
    : cluster_(in),
      place_(place),
      rank_(rank),
      memory_(memory),
      alive_(in.launch().block_threads),
      warps_((in.launch().block_threads + 31) / 32),
      warpgroups_((warps_.size() + 3) / 4),
      mbarriers_(*this) {
  for (int i = 0; i < barrier::kCount; ++i) barriers_[i].set_id(i);
  const int warps = static_cast<int>(warps_.size());
  for (int i = 0; i < warps; ++i) {
    const int lanes = i + 1 < warps ? 32 : in.launch().block_threads - 32 * i;
    warps_[i].start(i, 0xffffffffu >> (32 - lanes));
  }
  for (size_t i = 0; i < warpgroups_.size(); ++i) warpgroups_[i].start(*this, static_cast<int>(i));
  registers_.start(in.launch().block_threads);
}

thread_view block::start() {
  const grid_launch& launch = cluster_.launch();
  memory_.start(launch.shared_bytes);
  thread_view view;
  view.block_threads = launch.block_threads;
  view.block = place_;
  view.grid = launch.grid;
  view.cluster_rank = rank_;
  view.cluster_blocks = launch.cluster_blocks;
  view.shared = memory_.base();
  view.shared_bytes = launch.shared_bytes;
  view.guards = launch.guards.get();
  view.is_early = launch.programmatic;
  view.constant = launch.constant;
  return view;
}

void block::leave_thread() {
  if (self->is_early) fail("PDL", {}, "thread %d ends without wait_prerequisites", self->thread);
  current_warpgroup().leave();
  current_warp().leave(*this);
  check_stores_at_exit(*this);
  if (--alive_ > 0 || copies_.empty()) return;
  const copy_origin& from = copies_.begin()->second;
  fail_at(
      "BULK COPY", from.site, from.where,
      "all threads of rank %d exit while a copy of this line, by thread %d of rank %d, is still "
      "under way %s its shared memory",
      rank_, from.thread, from.by->rank(), from.reads ? "from" : "to");
}

void block::await_copy(const void* copy, const copy_origin& from) { copies_.emplace(copy, from); }

void block::forget_copy(const void* copy) { copies_.erase(copy); }

void block::fail(const char* kind, call_site site, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  cluster_.fail(rank_, kind, site, trace::capture(), format, arguments);
}

void block::fail_at(const char* kind, call_site site, const trace& where, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  cluster_.fail(rank_, kind, site, where, format, arguments);
}

}  // namespace kittens::sim
