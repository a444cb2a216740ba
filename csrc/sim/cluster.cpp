#include "sim/cluster.hpp"

#include <chrono>
#include <cstdio>
#include <exception>

#include "sim/block.hpp"
#include "sim/residents.hpp"

namespace kittens::sim {
namespace {

constinit thread_local cluster* running_cluster __attribute__((tls_model("initial-exec"))) =
    nullptr;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Ends asynchronous work that found something wrong, where there is no fiber to leave.
struct stopped {};

// What is "wrong" with a cluster that is not needed any more.
constexpr const char* kDropped = "DROPPED";

}  // namespace

cluster& cluster::running() { return *running_cluster; }

cluster::cluster(const grid_launch& launch, const position& first, uint64_t seed, workspace& memory)
    : launch_(launch),
      memory_(memory),
      random_(seed),
      asynchronous_(launch.chosen.policy, random_),
      threads_(launch.chosen.policy, random_, asynchronous_) {
  for (int rank = 0; rank < launch.cluster_blocks; ++rank) {
    if (static_cast<int>(memory.shared.size()) == rank) {
      memory.shared.push_back(std::make_unique<shared_memory>());
    }
    const position place{first.x + rank, first.y, first.z};
    blocks_.push_back(std::make_unique<block>(*this, place, rank, *memory.shared[rank]));
  }
}

cluster::~cluster() = default;

std::string cluster::run(fact_counter* facts, timeline* traced) {
  traced_ = traced;
  start(facts);
  running_cluster = this;
  run_to_end();
  if (found_.kind == nullptr) check_end();
  const std::string report = compose();
  if (races_ != nullptr) races_->leave_trace(*launch_.race);
  running_cluster = nullptr;
  return report;
}

void cluster::start(fact_counter* facts) {
  std::vector<thread_view> views;
  for (const auto& b : blocks_) views.emplace_back(b->start()).facts = facts;
  threads_.start(views, memory_.fiber_stacks, &cluster::enter_thread, traced_);
  if (launch_.race == nullptr) return;
  races_ = std::make_unique<race::detector>(*this);
  const std::span<fiber> fibers = threads_.fibers();
  for (size_t i = 0; i < fibers.size(); ++i) fibers[i].view.race = &races_->thread_at(i);
}

// A race may be the cause of the rest, so it comes first.
std::string cluster::compose() {
  if (found_.kind == kDropped) return "";
  const block_place where{blocks_[found_.rank]->place(), launch_.grid, found_.rank, size()};
  const std::string races = races_ != nullptr ? races_->report() : "";
  if (races.empty()) {
    return found_.kind != nullptr ? compose_report(found_, launch_.kernel, where, threads_) : "";
  }
  if (found_.kind == nullptr) return races + describe_place(launch_.kernel, where);
  return races + "\n" + compose_report(found_, launch_.kernel, where, threads_);
}

void cluster::run_to_end() {
  try {
    do {
      threads_.run_ready();
    } while (found_.kind == nullptr && asynchronous_.do_one());
  } catch (const stopped&) {
  }
}

void cluster::check_end() {
  if (threads_.alive() > 0) {
    found_.kind = "DEADLOCK";
    std::snprintf(found_.text, sizeof found_.text,
                  "no thread can run, and no asynchronous work is under way");
    return;
  }
  for (int rank = 0; rank < size(); ++rank) {
    if (const auto offset = memory_.shared[rank]->find_damage()) {
      found_.kind = "SHARED MEMORY";
      found_.rank = rank;
      std::snprintf(found_.text, sizeof found_.text,
                    "the block wrote at offset %lld, outside of its %lld bytes",
                    static_cast<long long>(*offset), static_cast<long long>(launch_.shared_bytes));
      return;
    }
  }
}

void cluster::enter_thread() {
  cluster& c = running();
  block& b = block::running();
  if (self->race != nullptr) self->race->stack_end = __builtin_frame_address(0);
  try {
    c.launch_.thread(c.launch_.context);
  } catch (const std::exception& e) {
    b.fail("EXCEPTION", {}, "thread %d throws: %s", self->thread, e.what());
  }
  if (self->race != nullptr) c.races_->leave(*self->race);
  b.leave_thread();
  c.barrier_.leave(c);
  c.threads_.exit();
}

void cluster::fail(int rank, const char* kind, call_site site, const trace& where,
                   const char* format, va_list arguments) {
  found_.kind = kind;
  found_.rank = rank;
  found_.site = site;
  found_.where = where;
  std::vsnprintf(found_.text, sizeof found_.text, format, arguments);
  if (!threads_.is_running()) throw stopped{};
  threads_.abandon();
}

void cluster::check_progress(call_site site) {
  constexpr uint64_t kSpinsBetweenClocks = 1 << 12;
  if (++spins_ % kSpinsBetweenClocks != 0) return;
  const double now = seconds_now();
  const uint64_t progress = threads_.wakeups() + launch_.all->events();
  if (spinning_since_ == 0 || progress != progress_before_ ||
      launch_.all->others_work(is_spinning_)) {
    spinning_since_ = now;
    progress_before_ = progress;
  } else if (now - spinning_since_ > launch_.chosen.spin_seconds) {
    char room[96] = "";
    launch_.all->describe(room, sizeof room);
    block::running().fail("LIVELOCK", site,
                          "for %g seconds, threads have spun here and no other has made progress%s",
                          launch_.chosen.spin_seconds, room);
  }
}

// Nothing in this cluster can end the spinning: so it waits for another one.
void cluster::pause() {
  const bool has_worked = threads_.wakeups() != wakeups_at_pause_;
  wakeups_at_pause_ = threads_.wakeups();
  is_spinning_ = launch_.all->pause(is_spinning_, has_worked);
  if (!launch_.all->has_failed()) return;
  found_.kind = kDropped;  // what it waits for may never come
  threads_.abandon();
}

void cluster::spin(call_site site) {
  check_progress(site);
  // Once every thread can have spun and nobody else woke up, what is left to wait for is
  // asynchronous work.
  if (threads_.wakeups() != wakeups_before_) {
    wakeups_before_ = threads_.wakeups();
    idle_spins_ = 0;
  } else if (++idle_spins_ > static_cast<uint64_t>(threads_.alive())) {
    idle_spins_ = 0;
    if (!asynchronous_.do_one()) pause();
  }
  threads_.yield();
}

void spin(call_site site) { cluster::running().spin(site); }

}  // namespace kittens::sim
