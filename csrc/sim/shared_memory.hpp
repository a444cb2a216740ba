// The shared memory of a block: NaNs at its start, and guards around it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace kittens::sim {

// What is in memory that nobody has written: a NaN as float, as bf16 and as half; signalling as the
// first two, so that arithmetic cannot leave it as it is.
inline constexpr uint32_t kPoison = 0x7fad7fad;

// Where a block's shared memory begins in the shared window: on the device, the first KiB of it
// belongs to the system.
inline constexpr int64_t kSharedWindowStart = 1024;

// Fills [p, p + bytes) with kPoison. p is aligned to 4.
void poison(uint8_t* p, int64_t bytes);

class shared_memory {
 public:
  shared_memory();

  void start(int64_t bytes);
  uint8_t* base() const { return memory_.get() + kGuardBytes; }

  // Where the guards were written to, relative to base(), if they were.
  std::optional<int64_t> find_damage() const;

 private:
  static constexpr int64_t kAlignment = 1024;
  static constexpr int64_t kGuardBytes = 4096;  // before, and after
  static constexpr uint8_t kGuard = 0xc5;

  struct release {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t, release> memory_;
  int64_t bytes_ = 0;
};

}  // namespace kittens::sim
