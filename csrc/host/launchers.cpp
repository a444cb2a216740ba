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

launcher op_launchers::find(const device& d) const {
  if (d.is_simulated())
    return find(d.race ? architecture::simulator_race : architecture::simulator);
  if (d.major == 9 && d.minor == 0) return find(architecture::sm90a);
  if (d.major != 8) return nullptr;
  const launcher newer = d.minor >= 9 ? find(architecture::sm89) : nullptr;
  return newer != nullptr ? newer : find(architecture::sm80);
}

std::string op_launchers::why_not(const device& d) const {
  if (d.is_simulated()) return "the simulator has no kernel of this op";
  std::string built;
  for (const architecture a : kAllArchitectures) {
    if (a >= architecture::simulator || find(a) == nullptr) continue;
    built += (built.empty() ? "" : ", ") + std::string(name(a));
  }
  if (built.empty()) return "not built: select it in configs.py";
  return "the GPU is sm_" + std::to_string(d.major) + std::to_string(d.minor) + "; built for " +
         built;
}

op_launchers& launchers(std::string_view name) {
  launcher_table& t = table();
  const std::lock_guard lock(t.mutex);
  const auto found = t.ops.find(name);
  return found != t.ops.end() ? found->second : t.ops[std::string(name)];
}

void add_launcher(std::string_view name, architecture a, launcher f) {
  launchers(name).by_architecture[static_cast<size_t>(a)] = f;
}

std::vector<std::string> all_ops() {
  launcher_table& t = table();
  const std::lock_guard lock(t.mutex);
  std::vector<std::string> names;
  for (const auto& [name, entry] : t.ops) names.push_back(name);
  return names;
}

}  // namespace kittens::host
