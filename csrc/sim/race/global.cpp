#include "sim/race/global.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "sim/trace.hpp"

namespace kittens::sim::race {
namespace {

// A kernel that the next one may overlap. (Its name is asked for when it is told: that takes long.)
struct in_front {
  const void* kernel = nullptr;
  byte_set written;
};

// Of each stream of this thread's launches.
std::map<host::stream, std::vector<in_front>>& all_in_front() {
  thread_local std::map<host::stream, std::vector<in_front>> kernels;
  return kernels;
}

// `count` bits from the `first` on.
uint64_t bits(uintptr_t first, uintptr_t count) {
  return (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << first;
}

// Calls f(page, line, bits) for each line of [p, p + bytes), where `bits` are its bytes.
template <class F>
void for_each_line(const void* p, int64_t bytes, uintptr_t line_bytes, uintptr_t page_lines, F f) {
  auto at = reinterpret_cast<uintptr_t>(p);
  for (const uintptr_t end = at + static_cast<uintptr_t>(bytes); at < end;) {
    const uintptr_t line = at / line_bytes, first = at % line_bytes;
    const uintptr_t count = std::min(line_bytes - first, end - at);
    f(line / page_lines, line % page_lines, bits(first, count));
    at += count;
  }
}

}  // namespace

byte_set::page& byte_set::page_at(uintptr_t number) {
  if (recent_ == nullptr || recent_number_ != number) {
    recent_ = &pages_[number];
    recent_number_ = number;
  }
  return *recent_;
}

void byte_set::add(const void* p, int64_t bytes) {
  for_each_line(p, bytes, kLineBytes, kPageLines, [&](uintptr_t page, uintptr_t i, uint64_t those) {
    page_at(page)[i].bytes |= those;
  });
}

void byte_set::join(const byte_set& other) {
  for (const auto& [number, lines] : other.pages_) {
    page& mine = page_at(number);
    for (uintptr_t i = 0; i < kPageLines; ++i) mine[i].bytes |= lines[i].bytes;
  }
}

void byte_set::keep_contents() {
  for (auto& [number, lines] : pages_) {
    for (uintptr_t i = 0; i < kPageLines; ++i) {
      const auto* from =
          reinterpret_cast<const uint8_t*>((number * kPageLines + i) * kLineBytes);  // NOLINT
      for (uint64_t left = lines[i].bytes; left != 0; left &= left - 1) {
        const int at = std::countr_zero(left);
        lines[i].contents[at] = from[at];
      }
    }
  }
}

byte_set::overlap byte_set::unchanged(const host::memory_range& range) const {
  overlap found;
  bool has_changed = false;
  const auto start = reinterpret_cast<uintptr_t>(range.data);
  for_each_line(range.data, range.bytes, kLineBytes, kPageLines,
                [&](uintptr_t number, uintptr_t i, uint64_t those) {
                  const auto page = pages_.find(number);
                  if (page == pages_.end()) return;
                  const line& known = page->second[i];
                  const uintptr_t first = (number * kPageLines + i) * kLineBytes;
                  for (uint64_t left = known.bytes & those; left != 0; left &= left - 1) {
                    const int at = std::countr_zero(left);
                    has_changed |= *reinterpret_cast<const uint8_t*>(first + at) !=
                                   known.contents[at];  // NOLINT
                    if (found.bytes++ == 0) found.first = static_cast<int64_t>(first + at - start);
                  }
                });
  return has_changed ? overlap() : found;
}

void launch_trace::add(const byte_set& written, bool lets_in_early) {
  const std::lock_guard lock(mutex_);
  written_.join(written);
  lets_in_early_ |= lets_in_early;
}

std::string broken_promise(host::stream s, const void* kernel, const host::launch_config& config) {
  if (!config.programmatic || config.constant.empty()) return "";
  const std::vector<in_front>& before = all_in_front()[s];
  for (auto one = before.rbegin(); one != before.rend(); ++one) {
    for (size_t i = 0; i < config.constant.size(); ++i) {
      const byte_set::overlap written = one->written.unchanged(config.constant[i]);
      if (written.bytes == 0) continue;
      return "RACE: " + kernel_name(kernel) + " is launched with the promise that constant[" +
             std::to_string(i) + "], " + std::to_string(config.constant[i].bytes) +
             " bytes, is written by no kernel that it may overlap; " + kernel_name(one->kernel) +
             (one == before.rbegin() ? ", the kernel in front of it,"
                                     : ", which may still run beside the kernel in front of it,") +
             " writes " + std::to_string(written.bytes) + " of them, from offset " +
             std::to_string(written.first) +
             " on\n  missing: another kernel between the two, that waits for what is in front of "
             "it; or a launch without the promise (of an op: without weight_is_constant=True)";
    }
  }
  return "";
}

void remember(host::stream s, const void* kernel, launch_trace&& of) {
  std::vector<in_front>& before = all_in_front()[s];
  if (!of.lets_in_early_) before.clear();
  of.written_.keep_contents();
  before.push_back({kernel, std::move(of.written_)});
}

void forget(host::stream s) { all_in_front().erase(s); }

}  // namespace kittens::sim::race
