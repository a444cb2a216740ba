#include "sim/facts.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "sim/block.hpp"
#include "sim/list_file.hpp"
#include "sim/random.hpp"

namespace kittens::sim {
namespace {

constexpr int kBanks = 32;
constexpr int64_t kWord = 4, kSector = 32;

int64_t count_different(std::vector<uint64_t>& values) {
  std::sort(values.begin(), values.end());
  return std::unique(values.begin(), values.end()) - values.begin();
}

// The wavefronts of one pass over shared memory, over the words that its lanes want.
int64_t count_wavefronts(std::vector<uint64_t>& words) {
  words.resize(count_different(words));
  std::array<int64_t, kBanks> wanted{};
  for (const uint64_t word : words) ++wanted[word % kBanks];
  return *std::max_element(wanted.begin(), wanted.end());
}

std::string to_json(const fact& f) {
  const std::pair<const char*, int64_t> amounts[] = {{"instructions", f.instructions},
                                                     {"shared_bytes", f.shared_bytes},
                                                     {"wavefronts", f.wavefronts},
                                                     {"passes", f.passes},
                                                     {"global_bytes", f.global_bytes},
                                                     {"sectors", f.sectors},
                                                     {"flops", f.flops}};
  std::string text;
  for (const auto& [name, amount] : amounts) {
    if (amount == 0) continue;
    text += (text.empty() ? "" : ", ") + quoted_json(name) + ": " + std::to_string(amount);
  }
  return text;
}

std::string to_json(const position& p) {
  return "[" + std::to_string(p.x) + ", " + std::to_string(p.y) + ", " + std::to_string(p.z) + "]";
}

}  // namespace

fact& fact::operator+=(const fact& other) {
  instructions += other.instructions;
  shared_bytes += other.shared_bytes;
  wavefronts += other.wavefronts;
  passes += other.passes;
  global_bytes += other.global_bytes;
  sectors += other.sectors;
  flops += other.flops;
  return *this;
}

size_t fact_place::hasher::operator()(const fact_place& p) const {
  uint64_t h = reinterpret_cast<uintptr_t>(p.name);
  for (const void* pc : p.where.pc) h = hash(h ^ reinterpret_cast<uintptr_t>(pc));
  return h;
}

fact_counter::fact_counter(int blocks, int warps)
    : warps_(warps), states_(static_cast<size_t>(blocks * warps)) {}

void fact_counter::count_lane(const char* name, const void* p, int64_t bytes, call_site site) {
  const std::string_view what = name;
  // A copy checks its barrier first; it is counted as work, by who knows its bytes.
  if (what.starts_with("tma_") || what.starts_with("bulk_")) return;
  const int warp = self->cluster_rank * warps_ + self->thread / 32, lane = self->thread % 32;
  warp_at_place& mine = states_[warp][{name, site, trace::capture()}];
  const auto time = static_cast<size_t>(mine.times[lane]++);
  if (time == mine.instructions.size()) {
    instruction& made = mine.instructions.emplace_back();
    made.is_memory = p != nullptr && !what.starts_with("mbarrier");
    made.is_shared = is_shared(p);
    made.bytes = bytes;
    if (what.starts_with("mma_m16n8k16")) made.flops = 2 * 16 * 8 * 16;
  }
  instruction& i = mine.instructions[time];
  i.lanes |= 1u << lane;
  // Banks go by the offset in the block's shared memory, which begins with bank 0.
  i.at[lane] = reinterpret_cast<uintptr_t>(p) -
               (i.is_shared ? reinterpret_cast<uintptr_t>(self->shared) : 0);
}

void fact_counter::count_work(const char* name, const fact& amounts, call_site site) {
  fact& total = facts_[{name, site, trace::capture()}];
  total += amounts;
  ++total.instructions;
}

fact fact_counter::evaluate(const instruction& i) {
  fact f{.instructions = 1, .flops = i.flops};
  if (!i.is_memory) return f;
  const int64_t unit = i.is_shared ? kWord : kSector;
  const int pass_lanes = !i.is_shared || i.bytes <= 4 ? 32 : i.bytes == 8 ? 16 : 8;
  std::vector<uint64_t> units;
  for (int first = 0; first < 32; first += pass_lanes) {
    units.clear();
    for (int lane = first; lane < first + pass_lanes; ++lane) {
      if ((i.lanes >> lane & 1) == 0) continue;
      const uintptr_t begin = i.at[lane];
      for (uint64_t u = begin / unit; u <= (begin + i.bytes - 1) / unit; ++u) units.push_back(u);
      (i.is_shared ? f.shared_bytes : f.global_bytes) += i.bytes;
    }
    if (units.empty()) continue;
    if (i.is_shared) {
      ++f.passes;
      f.wavefronts += count_wavefronts(units);
    } else {
      f.sectors += count_different(units);
    }
  }
  return f;
}

void fact_counter::flush(warp_state& warp) {
  for (auto& [place, here] : warp) {
    if (here.instructions.empty()) continue;
    fact& total = facts_[place];
    for (const instruction& i : here.instructions) total += evaluate(i);
    here = {};
  }
}

void fact_counter::meet_warp() { flush(states_[self->cluster_rank * warps_ + self->thread / 32]); }

void fact_counter::meet_block() {
  for (int warp = 0; warp < warps_; ++warp) flush(states_[self->cluster_rank * warps_ + warp]);
}

const std::unordered_map<fact_place, fact, fact_place::hasher>& fact_counter::finish() {
  for (warp_state& warp : states_) flush(warp);
  return facts_;
}

void launch_facts::add(fact_counter& cluster) {
  const auto& all = cluster.finish();
  const std::lock_guard lock(mutex_);
  for (const auto& [place, f] : all) facts_[place] += f;
}

void launch_facts::write(const grid_launch& launch) const {
  symbols known;
  for (const auto& [place, f] : facts_) known.add(place.where);
  known.resolve();
  fact total;
  std::map<std::string, int64_t> instructions;                // by name
  std::map<std::pair<std::string, std::string>, fact> lines;  // by line and name
  for (const auto& [place, f] : facts_) {
    total += f;
    instructions[place.name] += f.instructions;
    lines[{kernel_line(known, place.where, place.site), place.name}] += f;
  }
  const std::string kernel = kernel_name(launch.kernel);
  std::string text = "{\"kernel\": " + quoted_json(short_name(kernel)) +
                     ", \"instance\": " + quoted_json(kernel) +
                     ", \"grid\": " + to_json(launch.grid) +
                     ", \"threads\": " + std::to_string(launch.block_threads) +
                     ", \"shared_memory\": " + std::to_string(launch.shared_bytes) +
                     ",\n \"total\": {" + to_json(total) + "},\n \"instructions\": {";
  const char* separator = "";
  for (const auto& [name, count] : instructions) {
    text += std::exchange(separator, ", ") + quoted_json(name) + ": " + std::to_string(count);
  }
  text += "},\n \"lines\": [";
  separator = "\n";
  for (const auto& [at, f] : lines) {
    text += std::exchange(separator, ",\n") + ("  {\"line\": " + quoted_json(at.first)) +
            ", \"name\": " + quoted_json(at.second) + ", " + to_json(f) + "}";
  }
  append_to_list(launch.chosen.facts, "{\"launches\": ", text + "]}");
}

// ---- what the rest of the simulator calls

void count_lane(const char* name, const void* p, int64_t bytes, call_site site) {
  self->facts->count_lane(name, p, bytes, site);
}

void count_work(const char* name, const fact& amounts, call_site site) {
  if (self->facts != nullptr) self->facts->count_work(name, amounts, site);
}

}  // namespace kittens::sim
