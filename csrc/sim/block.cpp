#include "sim/block.hpp"

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>

namespace kittens::sim {
namespace {

constinit thread_local block* running_block = nullptr;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

const char* file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

block& block::running() { return *running_block; }

block::block(const grid_launch& launch, const position& place, uint64_t seed, workspace& memory)
    : launch_(launch),
      place_(place),
      memory_(memory),
      random_(seed),
      asynchronous_(launch.chosen.policy, random_),
      threads_(launch.chosen.policy, random_, asynchronous_),
      warps_((launch.block_threads + 31) / 32) {
  for (int i = 0; i < barrier::kCount; ++i) barriers_[i].set_id(i);
  const int warps = static_cast<int>(warps_.size());
  for (int i = 0; i < warps; ++i) {
    const int lanes = i + 1 < warps ? 32 : launch.block_threads - 32 * i;
    warps_[i].start(i, 0xffffffffu >> (32 - lanes));
  }
}

std::string block::run() {
  memory_.shared.start(launch_.shared_bytes);
  thread_view view;
  view.block_threads = launch_.block_threads;
  view.block = place_;
  view.grid = launch_.grid;
  view.shared = memory_.shared.base();
  view.shared_bytes = launch_.shared_bytes;
  view.guards = launch_.guards.get();
  threads_.start(view, memory_.fiber_stacks, &block::enter_thread);
  running_block = this;
  do {
    threads_.run_ready();
  } while (found_.kind == nullptr && asynchronous_.do_one());
  if (found_.kind == nullptr) check_end();
  std::string report;
  if (found_.kind != nullptr) {
    report = compose_report(found_, launch_.kernel, place_, launch_.grid, threads_);
  }
  running_block = nullptr;
  return report;
}

void block::check_end() {
  if (threads_.alive() > 0) {
    found_.kind = "DEADLOCK";
    std::snprintf(found_.text, sizeof found_.text,
                  "no thread can run, and no asynchronous work is under way");
  } else if (const auto offset = memory_.shared.find_damage()) {
    found_.kind = "SHARED MEMORY";
    std::snprintf(found_.text, sizeof found_.text,
                  "the block wrote at offset %lld, outside of its %lld bytes",
                  static_cast<long long>(*offset), static_cast<long long>(launch_.shared_bytes));
  }
}

void block::enter_thread() {
  block& b = running();
  try {
    b.launch_.thread(b.launch_.context);
  } catch (const std::exception& e) {
    b.fail("EXCEPTION", {}, "thread %d throws: %s", self->thread, e.what());
  }
  b.current_warp().leave(b);
  b.threads_.exit();
}

void block::fail(const char* kind, call_site site, const char* format, ...) {
  found_.kind = kind;
  found_.site = site;
  found_.where = trace::capture();
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(found_.text, sizeof found_.text, format, arguments);
  va_end(arguments);
  threads_.abandon();
}

void block::spin(call_site site) {
  constexpr uint64_t kSpinsBetweenClocks = 1 << 12;
  if (++spins_ % kSpinsBetweenClocks == 0) {
    const double now = seconds_now();
    if (spinning_since_ == 0 || threads_.wakeups() != progress_before_) {
      spinning_since_ = now;
      progress_before_ = threads_.wakeups();
    } else if (now - spinning_since_ > launch_.chosen.spin_seconds) {
      fail("LIVELOCK", site,
           "for %g seconds, threads have spun here and no other has made progress",
           launch_.chosen.spin_seconds);
    }
  }
  threads_.yield();
}

void spin(call_site site) { block::running().spin(site); }

}  // namespace kittens::sim
