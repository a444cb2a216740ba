#include "sim/register_pool.hpp"

#include <algorithm>
#include <utility>

#include "sim/block.hpp"
#include "sim/matrix_api.hpp"

namespace kittens::sim {
namespace {

constexpr int kWarpThreads = 32;
constexpr int kWarpgroupWarps = 4;
constexpr int kRegisters = 64 * 1024;  // of a multiprocessor
constexpr int kMost = 256, kUnit = 8;  // per thread

}  // namespace

void register_pool::start(int block_threads) {
  warps_ = std::vector<warp_share>((block_threads + kWarpThreads - 1) / kWarpThreads);
  const int warps = static_cast<int>(warps_.size());
  const int each = std::min(kMost, kRegisters / (warps * kWarpThreads) / kUnit * kUnit);
  for (int i = 0; i < warps; ++i) {
    warps_[i].pool = this;
    warps_[i].warp = i;
    warps_[i].count = warps_[i].wanted = each;
  }
  total_ = each * warps * kWarpThreads;
  free_ = 0;
}

bool register_pool::note(block& in, warp_share& mine, const char* name, int count, call_site site) {
  if (mine.wanted == count) return false;
  const size_t step = mine.history.size();
  const int first = mine.warp / kWarpgroupWarps * kWarpgroupWarps;
  const int end = std::min(first + kWarpgroupWarps, static_cast<int>(warps_.size()));
  for (int i = first; i < end; ++i) {
    const std::vector<int>& other = warps_[i].history;
    if (other.size() <= step || other[step] == count) continue;
    in.fail("REGISTERS", site, "%s<%d> by warp %d, but warp %d of its warpgroup asked for %d", name,
            count, mine.warp, i, other[step]);
  }
  mine.history.push_back(count);
  mine.wanted = count;
  return true;
}

void register_pool::raise(block& in, int count, call_site site) {
  warp_share& mine = warps_[in.threads().current().warp()];
  if (note(in, mine, "raise_registers", count, site) && count < mine.count) {
    in.fail("REGISTERS", site, "raise_registers<%d> by warp %d, which has %d per thread", count,
            mine.warp, mine.count);
  }
  while (mine.count < count) {
    const int more = (count - mine.count) * kWarpThreads;
    if (more <= free_) {
      free_ -= more;
      mine.count = count;
    } else {
      waiting_.push_back(&in.threads().current());
      in.threads().wait(mine, site);
    }
  }
}

void register_pool::lower(block& in, int count, call_site site) {
  warp_share& mine = warps_[in.threads().current().warp()];
  if (!note(in, mine, "lower_registers", count, site)) return;
  if (count > mine.count) {
    in.fail("REGISTERS", site, "lower_registers<%d> by warp %d, which has %d per thread", count,
            mine.warp, mine.count);
  }
  free_ += (mine.count - count) * kWarpThreads;
  mine.count = count;
  for (fiber* f : std::exchange(waiting_, {})) in.threads().make_ready(*f);
}

std::string register_pool::warp_share::describe() const {
  return "raise_registers<" + std::to_string(wanted) + "> of warp " + std::to_string(warp) +
         ": it wants " + std::to_string((wanted - count) * kWarpThreads) + " registers, " +
         std::to_string(pool->free_) + " of the block's " + std::to_string(pool->total_) +
         " are free";
}

// ---- what kernels call

namespace {

// All lanes of the warp are here, as the instruction wants it.
block& meet(const char* name, call_site site) {
  block& b = block::running();
  b.current_warp().meet(b, name, 0xffffffffu, nullptr, nullptr, site);
  return b;
}

}  // namespace

void raise_registers(int count, call_site site) {
  block& b = meet("raise_registers", site);
  b.registers().raise(b, count, site);
}

void lower_registers(int count, call_site site) {
  block& b = meet("lower_registers", site);
  b.registers().lower(b, count, site);
}

}  // namespace kittens::sim
