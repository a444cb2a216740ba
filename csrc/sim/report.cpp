#include "sim/report.hpp"

#include <algorithm>
#include <utility>

#include "sim/scheduler.hpp"

namespace kittens::sim {
namespace {

std::string to_text(const position& p) {
  return "(" + std::to_string(p.x) + ", " + std::to_string(p.y) + ", " + std::to_string(p.z) + ")";
}

std::string describe_state(const fiber& f, const symbols& known) {
  if (f.exited) return "have exited";
  if (f.waits_for == nullptr) return "";
  return "wait at " + kernel_line(known, f.where, f.site) + " for " + f.waits_for->describe();
}

// What the threads of a cluster do, in groups of those of a block that do the same, by their first
// threads.
std::string describe_threads(scheduler& threads, int cluster_blocks, const symbols& known) {
  struct group {
    std::string state;
    int rank;
    std::vector<int> members;
  };
  std::vector<group> groups;
  for (const fiber& f : threads.fibers()) {
    const std::string state = describe_state(f, known);
    if (state.empty()) continue;
    const int rank = f.view.cluster_rank;
    const auto same = [&](const group& g) { return g.state == state && g.rank == rank; };
    auto mine = std::find_if(groups.begin(), groups.end(), same);
    if (mine == groups.end()) mine = groups.insert(mine, {state, rank, {}});
    mine->members.push_back(f.view.thread);
  }
  std::string text;
  for (const auto& [state, rank, members] : groups) {
    text += "\n  " + std::to_string(members.size()) +
            (members.size() == 1 ? " thread [" : " threads [") + describe_ranges(members) + "] " +
            (cluster_blocks > 1 ? "of rank " + std::to_string(rank) + " " : "") + state;
  }
  return text;
}

}  // namespace

std::string describe_ranges(const std::vector<int>& numbers) {
  constexpr int kMostRanges = 8;
  std::string text;
  int ranges = 0;
  for (size_t first = 0, last = 0; first < numbers.size(); first = last + 1) {
    if (++ranges > kMostRanges) return text + ", …";
    last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[first]);
    if (last > first) text += "-" + std::to_string(numbers[last]);
  }
  return text;
}

std::string describe_place(const void* kernel, const block_place& place) {
  std::string text = "\n  in " + kernel_name(kernel) + ", block " + to_text(place.block) + " of " +
                     to_text(place.grid);
  if (place.cluster_blocks > 1) {
    text += ", rank " + std::to_string(place.rank) + " of a cluster of " +
            std::to_string(place.cluster_blocks);
  }
  return text;
}

std::string compose_report(const finding& f, const void* kernel, const block_place& place,
                           scheduler& threads) {
  threads.trace_waiting();
  symbols known;
  known.add(f.where);
  for (const fiber& waiting : threads.fibers()) known.add(waiting.where);
  known.resolve();
  std::string text = f.kind;
  if (f.site.line != 0) text += " at " + kernel_line(known, f.where, f.site);
  text += ": " + std::string(f.text) + describe_place(kernel, place);
  return text + describe_threads(threads, place.cluster_blocks, known);
}

}  // namespace kittens::sim
