#include "sim/timeline.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>
#include <utility>

#include "sim/cluster.hpp"
#include "sim/list_file.hpp"

namespace kittens::sim {
namespace {

constexpr std::string_view kHead =
    "{\"otherData\": {\"time\": \"steps of the simulator, not cycles\"},\n"
    "\"displayTimeUnit\": \"ns\",\n\"traceEvents\": ";

// Launches of this process that have written to a file: a process each, in the trace.
int next_process() {
  static std::atomic<int> processes = 0;
  return ++processes;
}

std::string name_event(const char* what, int process, int row, const std::string& name) {
  return std::string("{\"ph\": \"M\", \"name\": \"") + what +
         "_name\", \"pid\": " + std::to_string(process) + ", \"tid\": " + std::to_string(row) +
         ", \"args\": {\"name\": " + quoted_json(name) + "}}";
}

std::string sort_event(int process, int row) {
  return "{\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": " + std::to_string(process) +
         ", \"tid\": " + std::to_string(row) +
         ", \"args\": {\"sort_index\": " + std::to_string(row) + "}}";
}

std::string to_text(const position& p) {
  return "(" + std::to_string(p.x) + ", " + std::to_string(p.y) + ", " + std::to_string(p.z) + ")";
}

}  // namespace

timeline::timeline(int blocks, int warps, int block_threads) {
  for (int i = 0; i < blocks * warps; ++i) {
    warp& w = warps_.emplace_back();
    w.rank = i / warps;
    w.index = i % warps;
    w.alive = std::min(32, block_threads - 32 * w.index);
  }
}

std::string timeline::warp_row(const warp& w) {
  return (w.index < 10 ? "warp  " : "warp ") + std::to_string(w.index);
}

int timeline::add(int rank, std::string row, std::string name, call_site site, const trace& where) {
  spans_.push_back({rank, std::move(row), 0, std::move(name), now_, kOpen, site, where});
  return static_cast<int>(spans_.size()) - 1;
}

void timeline::runs(const fiber& f) {
  ++now_;
  if (f.queue_warp == running_warp_) return;
  if (running_ >= 0) spans_[running_].end = now_;
  const warp& w = warps_[f.queue_warp];
  running_warp_ = f.queue_warp;
  running_ = add(w.rank, warp_row(w), "runs", {}, {});
}

void timeline::open_wait(warp& w) {
  w.waits = add(w.rank, warp_row(w), w.on->describe(), w.site, w.where);
  spans_[w.waits].is_waiting = true;
  if (running_ >= 0 && warps_.data() + running_warp_ == &w) {
    spans_[running_].end = now_;
    running_ = running_warp_ = -1;
  }
}

void timeline::close_wait(warp& w) {
  if (w.waits >= 0) spans_[std::exchange(w.waits, -1)].end = now_;
}

void timeline::waits(const fiber& f, const waitable& on, call_site site) {
  ++now_;
  warp& w = warps_[f.queue_warp];
  w.on = &on;
  w.site = site;
  w.where = trace::capture();
  if (++w.waiting == w.alive) open_wait(w);
}

void timeline::wakes(const fiber& f) {
  ++now_;
  warp& w = warps_[f.queue_warp];
  close_wait(w);
  --w.waiting;
}

void timeline::exits(const fiber& f) {
  ++now_;
  warp& w = warps_[f.queue_warp];
  if (--w.alive > 0 && w.waiting == w.alive && w.waits < 0) open_wait(w);
}

timeline::work timeline::begin(int rank, const std::string& row, std::string name, call_site site,
                               const trace& where) {
  ++now_;
  return add(rank, row, std::move(name), site, where);
}

void timeline::end(work w) {
  ++now_;
  spans_[w].end = now_;
}

// What overlaps in a row gets more rows of that name.
void timeline::spread_rows() {
  std::map<std::pair<int, std::string>, std::vector<uint64_t>> ends;  // of each row's copies
  for (span& s : spans_) {
    s.end = std::min(s.end, now_ + 1);
    std::vector<uint64_t>& rows = ends[{s.rank, s.row}];
    const auto is_free = [&](uint64_t end) { return end <= s.start; };
    const auto row = std::find_if(rows.begin(), rows.end(), is_free) - rows.begin();
    if (row == std::ssize(rows)) rows.push_back(0);
    rows[row] = s.end;
    s.number = static_cast<int>(row);
  }
}

void timeline::write(const grid_launch& launch, const position& first, const std::string& report) {
  spread_rows();
  symbols known;
  for (const span& s : spans_) known.add(s.where);
  known.resolve();
  const int process = next_process();
  std::map<std::tuple<int, std::string, int>, int> rows;
  for (const span& s : spans_) rows[{s.rank, s.row, s.number}] = 0;
  int next_row = 0;
  for (auto& [name, row] : rows) row = ++next_row;
  options shown = launch.chosen;
  shown.facts = shown.trace = "";
  shown.trace_block = 0;
  std::string text =
      name_event("process", process, 0,
                 short_name(kernel_name(launch.kernel)) + ", block " + to_text(first) +
                     (launch.cluster_blocks > 1 ? " and its cluster, " : ", ") + to_string(shown));
  for (const auto& [place, row] : rows) {
    const auto& [rank, name, number] = place;
    std::string label = launch.cluster_blocks > 1 ? "rank " + std::to_string(rank) + " " : "";
    label += name + (number > 0 ? ", " + std::to_string(number + 1) : "");
    text += ",\n" + name_event("thread", process, row, label) + ",\n" + sort_event(process, row);
  }
  for (const span& s : spans_) {
    text +=
        ",\n{\"ph\": \"X\", \"name\": " + quoted_json((s.is_waiting ? "waits for " : "") + s.name) +
        ", \"pid\": " + std::to_string(process) +
        ", \"tid\": " + std::to_string(rows[{s.rank, s.row, s.number}]) +
        ", \"ts\": " + std::to_string(s.start) + ", \"dur\": " + std::to_string(s.end - s.start);
    if (s.site.line != 0) {
      text += ", \"args\": {\"line\": " + quoted_json(kernel_line(known, s.where, s.site)) + "}";
    }
    text += "}";
  }
  if (!report.empty()) {
    text += ",\n{\"ph\": \"i\", \"s\": \"p\", \"name\": \"report\", \"pid\": " +
            std::to_string(process) + ", \"tid\": 0, \"ts\": " + std::to_string(now_ + 1) +
            ", \"args\": {\"report\": " + quoted_json(report) + "}}";
  }
  append_to_list(launch.chosen.trace, kHead, text);
}

void timeline::write_missing(const grid_launch& launch) {
  append_to_list(launch.chosen.trace, kHead,
                 name_event("process", next_process(), 0,
                            short_name(kernel_name(launch.kernel)) + " has no block " +
                                std::to_string(launch.chosen.trace_block)));
}

}  // namespace kittens::sim
