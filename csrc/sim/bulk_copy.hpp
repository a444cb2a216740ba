// Bulk copies as asynchronous work.
//
// A load fills its destination and counts its bytes on a barrier, in one piece. A store is two
// pieces: its source is read, later its destination written. So a kernel that writes the source
// before bulk_wait_read, or reads the destination before bulk_wait, gets the wrong numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/api.hpp"
#include "sim/trace.hpp"

namespace kittens::sim {

class block;
class mbarrier;

// Which line started a copy.
struct copy_origin {
  const char* name = "";
  block* by = nullptr;
  int thread = 0;
  call_site site;
  trace where;
  bool reads = false;  // the shared memory that it is about, to write another block's

  // Of the current thread. `is_constant`: it reads what may be read early.
  static copy_origin here(const char* name, call_site site, bool is_constant = false);
  // Reports the copy if [p, p + bytes) of global memory touches the guards of a buffer.
  void check_guards(const uint8_t* p, int64_t bytes) const;
};

// Where a load goes: to one block, or to several of a cluster.
struct copy_target {
  block* in = nullptr;
  uint8_t* dst = nullptr;
  mbarrier* full = nullptr;
  uint32_t order = 0;  // of the copy, for race mode
};

// The shared memory that a copy touches: calls f(address, bytes) for each piece of it, given where
// the whole of it starts.
using touched_pieces = std::function<void(const uint8_t* shared,
                                          const std::function<void(const uint8_t*, int64_t)>& f)>;

// The targets in the blocks of a bit mask of ranks, checked. dst and full: of the calling block.
std::vector<copy_target> find_targets(const char* name, void* dst, void* full, unsigned blocks,
                                      call_site site);

// spoil: what is in the destination while the copy is under way. fill: what it is then. pieces: of
// the destination.
struct load_steps {
  std::function<void(uint8_t* dst)> spoil;
  std::function<void(const copy_origin&, uint8_t* dst)> fill;
  touched_pieces pieces;
  const uint8_t* source = nullptr;  // in the shared memory of the block that starts it, if it is
  int64_t source_bytes = 0;
};
void start_load(copy_origin from, std::vector<copy_target> targets, int64_t bytes,
                load_steps steps);

// read: from shared memory to the packed bytes; write: from there to global memory.
struct store_steps {
  std::function<void(uint8_t* packed)> read;
  std::function<void(const copy_origin&, const uint8_t* packed)> write;
  touched_pieces pieces;
};
void start_store(copy_origin from, const uint8_t* src, int64_t bytes, store_steps steps);

// Reports a range of shared memory that is not the block's, or not aligned.
void check_shared_range(const char* name, const void* p, int64_t bytes, int64_t alignment,
                        call_site site);

// The current thread exits: reports stores that it has not waited for.
void check_stores_at_exit(block& in);

}  // namespace kittens::sim
