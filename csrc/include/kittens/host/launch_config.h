// How a kernel is launched, and what is refused before it is: the same in both worlds. Plain C++.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kittens/host/launchers.h"

namespace kittens::host {

// 64 bits, so that a grid computed from tensor sizes is refused when it is too large, not
// truncated.
struct dim {
  int64_t x = 1, y = 1, z = 1;
};

inline constexpr int64_t kMaxGridX = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMaxGridYZ = 65535;
inline constexpr int64_t kMaxBlockThreads = 1024;

// Some bytes of the device's memory.
struct memory_range {
  const void* data = nullptr;
  int64_t bytes = 0;
};

struct launch_config {
  dim grid;                   // blocks
  dim block;                  // threads of a block: one-dimensional, x only
  int64_t shared_bytes = 0;   // dynamic shared memory of a block
  int64_t cluster = 1;        // blocks of a cluster, along x
  bool programmatic = false;  // may start while kernels before it run: arch/grid.cuh
  // What the kernel's __launch_bounds__ promise. To be said where the block's size is computed: a
  // GPU refuses a larger one, and g++, which compiles kernels for the simulator, does not see them.
  int64_t max_threads = kMaxBlockThreads;
  // What no kernel writes that a programmatic launch may overlap, so that its kernel may read it
  // before wait_prerequisites(). The caller's promise, and for as long as the launch takes its
  // array: a GPU is not told, the simulator holds both to it.
  std::span<const memory_range> constant = {};
};

inline constexpr int64_t kMaxSharedBytes = 227 * 1024;
inline constexpr int64_t kMaxClusterBlocks = 16;

// Whether the hardware takes `config`; a handful of comparisons, done at each launch.
constexpr bool launchable(const launch_config& c) {
  return c.grid.x >= 1 && c.grid.x <= kMaxGridX && c.grid.y >= 1 && c.grid.y <= kMaxGridYZ &&
         c.grid.z >= 1 && c.grid.z <= kMaxGridYZ && c.block.x >= 1 && c.block.x <= c.max_threads &&
         c.max_threads <= kMaxBlockThreads && c.block.y == 1 && c.block.z == 1 &&
         c.shared_bytes >= 0 && c.shared_bytes <= kMaxSharedBytes && c.cluster >= 1 &&
         c.cluster <= kMaxClusterBlocks && c.grid.x % c.cluster == 0;
}

// Of a config that is launchable; 2^63 are more.
constexpr int64_t blocks_of(const launch_config& c) { return c.grid.x * c.grid.y * c.grid.z; }

// What is wrong with a config that is not launchable: `grid x must be 1 to 2147483647, got 0`.
inline std::string why_not_launchable(const launch_config& config) {
  struct rule {
    const char* what;
    int64_t least, most, got;
  };
  const rule rules[] = {
      {"grid x", 1, kMaxGridX, config.grid.x},
      {"grid y", 1, kMaxGridYZ, config.grid.y},
      {"grid z", 1, kMaxGridYZ, config.grid.z},
      {"max_threads", 1, kMaxBlockThreads, config.max_threads},
      {"block x", 1, config.max_threads, config.block.x},
      {"block y", 1, 1, config.block.y},
      {"block z", 1, 1, config.block.z},
      {"shared_bytes", 0, kMaxSharedBytes, config.shared_bytes},
      {"cluster", 1, kMaxClusterBlocks, config.cluster},
  };
  for (const rule& r : rules) {
    if (r.got >= r.least && r.got <= r.most) continue;
    return std::string(r.what) + " must be " + std::to_string(r.least) + " to " +
           std::to_string(r.most) + ", got " + std::to_string(r.got);
  }
  if (config.grid.x % config.cluster != 0) {
    return "grid x must be a multiple of cluster (" + std::to_string(config.cluster) + "), got " +
           std::to_string(config.grid.x);
  }
  return "";
}

}  // namespace kittens::host
