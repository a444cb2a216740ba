#include "sim/watch.hpp"

#include <optional>

#include "sim/timeline.hpp"

namespace kittens::sim {

launch_watch::launch_watch(const grid_launch& launch, int64_t row_clusters)
    : launch_(launch), warps_((launch.block_threads + 31) / 32) {
  if (launch.chosen.trace.empty()) return;
  const int64_t block = launch.chosen.trace_block, x = launch.grid.x;
  is_missing_ = block >= x * launch.grid.y * launch.grid.z;
  if (!is_missing_) traced_ = block / x * row_clusters + block % x / launch.cluster_blocks;
}

std::string launch_watch::run(cluster& c, int64_t index, const position& first) {
  std::optional<fact_counter> facts;
  std::optional<timeline> traced;
  if (!launch_.chosen.facts.empty()) facts.emplace(launch_.cluster_blocks, warps_);
  if (index == traced_) traced.emplace(launch_.cluster_blocks, warps_, launch_.block_threads);
  std::string report = c.run(facts ? &*facts : nullptr, traced ? &*traced : nullptr);
  if (facts && report.empty()) facts_.add(*facts);
  if (traced) traced->write(launch_, first, report);
  return report;
}

void launch_watch::finish(bool is_right) const {
  if (is_missing_) timeline::write_missing(launch_);
  if (is_right && !launch_.chosen.facts.empty()) facts_.write(launch_);
}

}  // namespace kittens::sim
