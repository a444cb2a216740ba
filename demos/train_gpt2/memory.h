// Memory of the device, taken once at the start, and its stream: CUDA's, or the CPU's where the
// simulator runs the kernels. What is allocated and waited for is counted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "thunderkittens/kernels/common.h"

namespace gpt2 {

using thunderkittens::device;
using thunderkittens::dtype;
using thunderkittens::error;
using thunderkittens::stream;
using clock = std::chrono::steady_clock;

// The GPU of that number, or what the program is built for: the simulator. Throws error where there
// is none.
device device_of(int64_t index);

// What the maker calls it; "" of the simulator.
std::string name_of(const device& d);

// Since the program's start.
struct counters {
  int64_t allocations = 0;       // of device memory, and of the host's that the device copies from;
                                 // a recording is one
  int64_t synchronisations = 0;  // with all work of the stream
};
counters& count();

class nccl;

enum class place { device, host };  // host: pinned, for copies that run beside the program

// One allocation. `take` hands it out in order: once before it is there, to find its size, and once
// more afterwards, with the same calls.
//
//   const auto lay_out = [&] { x = memory.take<float>(n); y = memory.take<int>(m); };
//   memory.allocate(lay_out);
class arena {
 public:
  // between: whose memory it is, for other ranks to reach; null: its own.
  arena(const device& d, place where, nccl* between = nullptr)
      : simulated_(d.is_simulated()), where_(where), between_(between) {}
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena();

  template <class F>
  void allocate(const F& lay_out) {
    lay_out();
    allocate_taken();
    lay_out();
  }
  void* take_bytes(int64_t bytes);
  template <class T>
  T* take(int64_t elements) {
    return static_cast<T*>(take_bytes(elements * int64_t{sizeof(T)}));
  }
  int64_t bytes() const { return taken_; }

 private:
  void allocate_taken();  // zeroed
  void* new_memory(int64_t bytes) const;

  static constexpr int64_t kAlignment = 256;  // of bytes: more than any kernel asks for
  bool simulated_;
  [[maybe_unused]] place where_;
  nccl* between_;
  std::byte* base_ = nullptr;
  int64_t taken_ = 0;
};

// A stream, and copies on it. Marks are points in its work: there are kMarks of them, which are put
// and waited for in turn.
class point;

class queue {
 public:
  // Two may be under way, and the first of these is timed from the mark before it.
  static constexpr int kMarks = 3;

  explicit queue(const device& d);
  queue(const queue&) = delete;
  queue& operator=(const queue&) = delete;
  ~queue();

  stream handle() const { return stream_; }
  bool is_simulated() const { return simulated_; }
  // Between any two memories. Asynchronous where the host's memory is pinned.
  void copy(void* to, const void* from, int64_t bytes);
  void clear(void* to, int64_t bytes);  // to zeros
  void mark(int number);
  // Waits until the work before a mark is done; what is behind it goes on. Returns when it was
  // done, also where the host comes late: where the launches behind it fill a stream's memory, the
  // host is held up until it has room again, half a step of 1.5B parameters.
  clock::time_point wait(int number);
  void synchronise();
  // What comes now waits until another queue's work has come to that point.
  void follow(const point& p);

 private:
  bool simulated_;
  stream stream_ = nullptr;
  [[maybe_unused]] void* marks_[kMarks] = {};  // CUDA's events
  clock::time_point reached_[kMarks] = {};     // in the simulator a launch returns when it is done
};

// A point in a queue's work that another can wait for. It may be put anew, any number of times.
class point {
 public:
  explicit point(const device& d);
  point(const point&) = delete;
  point& operator=(const point&) = delete;
  ~point();

  void put(const queue& q);

 private:
  friend class queue;
  [[maybe_unused]] void* event_ = nullptr;  // CUDA's; in the simulator nothing runs beside another
};

// The times between points in a queue's work.
class stopwatch {
 public:
  explicit stopwatch(queue& q) : queue_(q) {}
  stopwatch(const stopwatch&) = delete;
  stopwatch& operator=(const stopwatch&) = delete;
  ~stopwatch();

  void take();  // a point
  // From each point to the next, once the work is done.
  std::vector<double> milliseconds() const;

 private:
  queue& queue_;
  std::vector<void*> events_;             // CUDA's
  std::vector<clock::time_point> times_;  // in the simulator
};

// What `count` elements on the device are, in float32. Waits for the queue.
std::vector<float> to_host(queue& q, dtype type, const void* from, int64_t count);

// Launches on a queue, recorded once and launched as one, any number of times: a CUDA graph. All
// that changes from one time to the next has to be in device memory. Beside the simulator, where
// there is nothing to record, `work` itself is called.
class recording {
 public:
  // Calls `work`, whose launches are recorded and not made.
  recording(queue& q, std::function<void()> work);
  recording(const recording&) = delete;
  recording& operator=(const recording&) = delete;
  ~recording();

  void launch();

 private:
  [[maybe_unused]] queue& queue_;
  std::function<void()> work_;
  [[maybe_unused]] void* graph_ = nullptr;  // CUDA's, executable
};

}  // namespace gpt2
