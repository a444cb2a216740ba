#include "kittens/host/launchers.h"

#include <map>
#include <mutex>

#include "kittens/host/launch_config.h"

namespace kittens::host {
namespace {

struct launcher_table {
  std::mutex mutex;
  std::map<std::string, op_launchers, std::less<>> ops;  // a map: its entries never move
};

// Made at the first use, because launchers are entered while libraries load, in any order; never
// destroyed, because ops may run until the process ends.
launcher_table& table() {
  static auto* const the_table = new launcher_table;
  return *the_table;
}

std::string out_of_range(const char* what, int64_t least, int64_t most, int64_t got) {
  return std::string(what) + " must be " + std::to_string(least) + " to " + std::to_string(most) +
         ", got " + std::to_string(got);
}

}  // namespace

op_launchers& launchers(std::string_view op) {
  launcher_table& t = table();
  const std::lock_guard lock(t.mutex);
  const auto found = t.ops.find(op);
  return found != t.ops.end() ? found->second : t.ops[std::string(op)];
}

void add_launcher(std::string_view op, architecture a, launcher f) {
  launchers(op).by_architecture[static_cast<size_t>(a)] = f;
}

std::vector<std::string> all_ops() {
  launcher_table& t = table();
  const std::lock_guard lock(t.mutex);
  std::vector<std::string> names;
  for (const auto& [name, entry] : t.ops) names.push_back(name);
  return names;
}

std::string why_not_launchable(const launch_config& config) {
  struct rule {
    const char* what;
    int64_t least, most, got;
  };
  const rule rules[] = {
      {"grid x", 1, kMaxGridX, config.grid.x},
      {"grid y", 1, kMaxGridYZ, config.grid.y},
      {"grid z", 1, kMaxGridYZ, config.grid.z},
      {"block x", 1, kMaxBlockThreads, config.block.x},
      {"block y", 1, 1, config.block.y},
      {"block z", 1, 1, config.block.z},
      {"shared_bytes", 0, kMaxSharedBytes, config.shared_bytes},
      {"cluster", 1, kMaxClusterBlocks, config.cluster},
  };
  for (const rule& r : rules) {
    if (r.got < r.least || r.got > r.most) return out_of_range(r.what, r.least, r.most, r.got);
  }
  if (config.grid.x % config.cluster != 0) {
    return "grid x must be a multiple of cluster (" + std::to_string(config.cluster) + "), got " +
           std::to_string(config.grid.x);
  }
  return "";
}

}  // namespace kittens::host
