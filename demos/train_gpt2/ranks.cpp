#include "ranks.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>

#include "thunderkittens/kernels/common.h"

namespace gpt2 {
namespace {

using thunderkittens::error;

// Those that were started, for the signal's handler: 0 once they have ended.
constexpr int kMostRanks = 1024;
volatile int started[kMostRanks];
volatile int started_count = 0;

void send_all(int signal) {
  for (int i = 0; i < started_count; ++i) {
    if (started[i] > 0) kill(started[i], signal);
  }
}

}  // namespace

ranks::ranks(int count) : count_(count) {
  void* const memory =
      mmap(nullptr, sizeof(blackboard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw error(std::string("sharing memory: ") + std::strerror(errno));
  shared_ = new (memory) blackboard;
  if (count == 1) return;
  if (count > kMostRanks) throw error("there can be " + std::to_string(kMostRanks) + " ranks");
  const pid_t parent = getpid();
  std::vector<int> processes;
  for (int rank = 0; rank < count; ++rank) {
    std::fflush(nullptr);  // else both would write what is buffered
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // it has ended before that was said
      rank_ = rank;
      if (rank > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) _exit(1);
      return;
    }
    if (process < 0) {
      const int why = errno;
      send_all(SIGKILL);
      throw error("starting rank " + std::to_string(rank) + ": " + std::strerror(why));
    }
    processes.push_back(process);
    started[rank] = process;
    started_count = rank + 1;
  }
  watch(processes);
}

void ranks::watch(const std::vector<int>& processes) {
  std::signal(SIGINT, [](int) { send_all(SIGINT); });
  bool failed = false;
  for (size_t left = processes.size(); left > 0;) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) break;
    const auto found = std::ranges::find(processes, ended);
    if (found == processes.end()) continue;
    const auto rank = static_cast<int>(found - processes.begin());
    started[rank] = 0;
    --left;
    if (status == 0 || failed) continue;
    failed = true;
    if (WIFSIGNALED(status)) {
      std::fprintf(stderr, "train_gpt2: rank %d was ended by signal %d (%s), and so all are\n",
                   rank, WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    send_all(SIGKILL);
  }
  std::exit(failed ? 1 : 0);
}

void ranks::hand_out(void* data, size_t bytes) {
  if (bytes > blackboard::kMost) throw error("too much to hand out");
  if (is_first()) {
    std::memcpy(shared_->data, data, bytes);
    shared_->is_written = true;
    return;
  }
  while (!shared_->is_written) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::memcpy(data, shared_->data, bytes);
}

bool ranks::ends_at(int64_t steps, bool interrupted) {
  if (count_ == 1) return interrupted;
  if (is_first() && interrupted && shared_->last_step == INT64_MAX) shared_->last_step = steps + 2;
  return steps >= shared_->last_step;
}

bool ranks::may_speak() { return !shared_->is_spoken.exchange(true); }

}  // namespace gpt2
