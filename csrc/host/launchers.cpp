#include "kittens/host/launchers.h"

#include <algorithm>
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

launcher op_launchers::find(const device& d, kernel_kind kind) const {
  if (entered_twice) return nullptr;
  if (d.is_simulated())
    return find(d.race ? architecture::simulator_race : architecture::simulator, kind);
  launcher newest = nullptr;
  for (const architecture a : kAllArchitectures) {  // in the order of their capabilities
    const architecture_facts& facts = facts_of(a);
    const bool runs = facts.major == d.major && facts.minor <= d.minor &&
                      (a != architecture::sm90a || d.minor == 0);
    if (const launcher f = find(a, kind); runs && f != nullptr) newest = f;
  }
  return newest;
}

launcher op_launchers::find(const device& d) const {
  const launcher specialised = d.generic ? nullptr : find(d, kernel_kind::specialised);
  if (specialised != nullptr) return specialised;
  return find(d, kernel_kind::generic);
}

bool op_launchers::takes_generic(const device& d) const {
  const launcher found = find(d);
  if (found == nullptr || found != find(d, kernel_kind::generic)) return false;
  const of_kind& specialised = by_kind[static_cast<size_t>(kernel_kind::specialised)];
  return std::any_of(specialised.begin(), specialised.end(),
                     [](const auto& f) { return f != nullptr; });
}

std::string op_launchers::why_not(const device& d) const {
  if (entered_twice) return "two kernels of one kind were entered for one architecture";
  if (d.generic && find(d, kernel_kind::specialised) != nullptr) {
    return "it has no generic kernel for this device";
  }
  if (d.is_simulated()) return "the simulator has no kernel of this op";
  std::string built;
  for (const architecture a : kAllArchitectures) {
    if (a >= architecture::simulator || !is_built_for(a)) continue;
    built += (built.empty() ? "" : ", ") + std::string(name(a));
  }
  if (built.empty()) return "left out of this build, by make demo or configs.py";
  return "the GPU is sm_" + std::to_string(d.major) + std::to_string(d.minor) + "; built for " +
         built;
}

op_launchers& launchers(std::string_view name) {
  launcher_table& t = table();
  const std::lock_guard lock(t.mutex);
  const auto found = t.ops.find(name);
  return found != t.ops.end() ? found->second : t.ops[std::string(name)];
}

void add_launcher(std::string_view name, architecture a, kernel_kind kind, launcher f) {
  op_launchers& entry = launchers(name);
  launcher none = nullptr;
  auto& place = entry.by_kind[static_cast<size_t>(kind)][static_cast<size_t>(a)];
  if (!place.compare_exchange_strong(none, f)) entry.entered_twice = true;
}

std::vector<std::string> all_ops() {
  launcher_table& t = table();
  const std::lock_guard lock(t.mutex);
  std::vector<std::string> names;
  for (const auto& [name, entry] : t.ops) names.push_back(name);
  return names;
}

}  // namespace kittens::host
