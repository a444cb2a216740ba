// What the lanes of a warp do together: they meet, and the last to come does the work for all.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/scheduler.hpp"

namespace kittens::sim {

class block;

// The lanes that have come to one collective. Several may be under way in a warp, of disjoint
// lanes.
class meeting final : public waitable {
 public:
  // What each lane brings, and finds changed when it goes on. Null: the lane has not come.
  using contributions = std::array<void*, 32>;
  using work = void (*)(const contributions& lanes);

  void begin(const char* operation, int warp, unsigned mask, call_site site);
  void add(fiber& f, void* contribution);
  void complete(scheduler& s, work w);
  std::string describe() const override;

  bool is_empty() const { return arrived_ == 0; }
  bool is_complete() const { return arrived_ == mask_; }
  unsigned mask() const { return mask_; }
  unsigned arrived() const { return arrived_; }
  const char* operation() const { return operation_; }
  call_site site() const { return site_; }

 private:
  const char* operation_ = "";
  int warp_ = 0;
  unsigned mask_ = 0, arrived_ = 0;
  call_site site_;
  contributions contributions_{};
  std::array<fiber*, 32> fibers_{};
};

class warp {
 public:
  // `lanes`: those that the warp has, fewer than 32 in the last warp of some blocks.
  void start(int index, unsigned lanes);
  // The current thread meets the other lanes of `mask`. Returns when all have and the work is done.
  void meet(block& in, const char* operation, unsigned mask, void* contribution, meeting::work w,
            call_site site);
  // The current thread ends.
  void leave(block& in);

 private:
  meeting& find(block& in, const char* operation, unsigned mask, call_site site);
  void check_lanes(block& in, const char* operation, unsigned mask, call_site site);

  int index_ = 0;
  unsigned lanes_ = 0, exited_ = 0;
  std::vector<std::unique_ptr<meeting>> meetings_;  // as many as were ever under way at once
};

// `lanes 0-15, 20`, from a mask.
std::string describe_lanes(unsigned mask);

}  // namespace kittens::sim
