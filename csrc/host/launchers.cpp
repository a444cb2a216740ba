#include "kittens/host/launchers.h"

#include <map>
#include <mutex>

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

}  // namespace kittens::host
