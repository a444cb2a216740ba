// Global memory, from launch to launch: what a programmatic launch is promised to be constant
// (host/launch_config.h), against what the kernels in front of it have written.
//
// Those that it may overlap are the one directly in front of it in its stream and, where threads of
// that one let it in before they waited themselves, those that were in front of that. What the host
// does in between is not seen, and counts as nothing. But memory is given back and used again, and
// what the host has written is constant: a range where a byte is not any more what a kernel has
// left there was written over.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "kittens/host/launch_config.h"
#include "kittens/host/launchers.h"

namespace kittens::sim::race {

// Bytes of global memory, and what was in them when `keep_contents` was called.
class byte_set {
 public:
  void add(const void* p, int64_t bytes);
  void join(const byte_set& other);
  void keep_contents();

  struct overlap {
    int64_t bytes = 0, first = 0;  // how many, and the offset of the first one
  };
  // What of a range is in it; nothing, if any of that has changed.
  overlap unchanged(const host::memory_range& range) const;

 private:
  static constexpr uintptr_t kLineBytes = 64, kPageLines = 64;

  struct line {
    uint64_t bytes = 0;  // a bit each
    std::array<uint8_t, kLineBytes> contents;
  };
  using page = std::array<line, kPageLines>;

  page& page_at(uintptr_t number);

  std::unordered_map<uintptr_t, page> pages_;  // by number
  page* recent_ = nullptr;
  uintptr_t recent_number_ = 0;
};

// What a launch does that those behind it are checked against. Filled in by its clusters.
class launch_trace {
 public:
  void add(const byte_set& written, bool lets_in_early);

 private:
  friend void remember(host::stream s, const void* kernel, launch_trace&& of);

  std::mutex mutex_;
  byte_set written_;
  bool lets_in_early_ = false;  // a thread of it: the next kernel, before it has waited itself
};

// The report of a launch by this thread to whom a promise is broken; empty when none is.
std::string broken_promise(host::stream s, const void* kernel, const host::launch_config& config);

// This thread's launch has ended: it is in front of the next one in its stream.
void remember(host::stream s, const void* kernel, launch_trace&& of);
// The same of one that was not watched.
void forget(host::stream s);

}  // namespace kittens::sim::race
