// What the trainer calls of NCCL, over memory that processes share, so that its ranks can be tested
// where there is no GPU: beside the simulator, whose device memory is the process' own. Calls are
// done when they return. Ranks that do not ask for the same, at the same offsets of their windows,
// get an error (ncclInvalidUsage), and so does who exchanges what is in no window
// (ncclInvalidArgument): copy engines would not do that.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int kMostRanks = 8, kFloat32 = 7, kBfloat16 = 9;
constexpr size_t kSlot = 1 << 16;  // bytes of a rank that pass at once
enum status { success = 0, system_error = 2, invalid_argument = 4, invalid_usage = 5 };

struct unique_id {
  char bytes[128];
};

struct request {
  int what, type;           // 0: an exchange, 1: a gathering, 2: a window
  size_t count;             // of a window in bytes
  size_t from = 0, to = 0;  // offsets in windows
  bool operator==(const request&) const = default;
};

struct memory {
  std::atomic<int> arrived = 0;
  std::atomic<int64_t> round = 0;
  request asked[kMostRanks];
  alignas(64) std::byte slots[kMostRanks][kSlot];
};

struct window {
  const std::byte* memory;
  size_t bytes;
};

struct communicator {
  int ranks, rank;
  memory* shared;
  std::vector<window*> windows = {};

  // Where `bytes` from an address on are in a window, or kOutside.
  static constexpr size_t kOutside = SIZE_MAX;
  size_t offset_of(const void* address, size_t bytes) const {
    for (const window* w : windows) {
      const auto* const at = static_cast<const std::byte*>(address);
      if (at >= w->memory && at + bytes <= w->memory + w->bytes) return at - w->memory;
    }
    return kOutside;
  }

  void meet() const {
    const int64_t round = shared->round;
    if (++shared->arrived == ranks) {
      shared->arrived = 0;
      ++shared->round;
      return;
    }
    while (shared->round == round) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  bool all_ask(const request& mine) const {
    shared->asked[rank] = mine;
    meet();
    bool same = true;
    for (int r = 0; r < ranks; ++r) same = same && shared->asked[r] == mine;
    meet();
    return same;
  }
};

size_t bytes_of(int type) { return type == kFloat32 ? 4 : 2; }

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int ncclGetUniqueId(unique_id* id) {
  std::snprintf(id->bytes, sizeof(id->bytes), "/nccl_of_processes_%d", getpid());
  const int file = shm_open(id->bytes, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, sizeof(memory)) != 0) return system_error;
  close(file);  // zeros, as the atomics begin
  return success;
}

EXPORTED int ncclCommInitRank(void** made, int ranks, unique_id id, int rank) {
  if (ranks > kMostRanks) return invalid_argument;
  const int file = shm_open(id.bytes, O_RDWR, 0600);
  if (file < 0) return system_error;
  void* const at = mmap(nullptr, sizeof(memory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at == MAP_FAILED) return system_error;
  auto* const c = new communicator{ranks, rank, static_cast<memory*>(at)};
  c->meet();
  if (rank == 0) shm_unlink(id.bytes);
  *made = c;
  return success;
}

EXPORTED int ncclCommDestroy(void* made) {
  auto* const c = static_cast<communicator*>(made);
  munmap(c->shared, sizeof(memory));
  delete c;
  return success;
}

EXPORTED int ncclMemAlloc(void** made, size_t bytes) {
  constexpr size_t kPage = 4096;
  *made = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  return *made == nullptr ? system_error : success;
}

EXPORTED int ncclMemFree(void* memory) {
  std::free(memory);
  return success;
}

EXPORTED int ncclCommWindowRegister(void* made, void* data, size_t bytes, void** registered,
                                    int flags) {
  communicator& c = *static_cast<communicator*>(made);
  if (flags != 1) return invalid_argument;  // symmetric
  if (!c.all_ask({2, 0, bytes})) return invalid_usage;
  *registered = c.windows.emplace_back(new window{static_cast<const std::byte*>(data), bytes});
  return success;
}

EXPORTED int ncclCommWindowDeregister(void* made, void* registered) {
  auto& windows = static_cast<communicator*>(made)->windows;
  const auto found = std::find(windows.begin(), windows.end(), registered);
  if (found == windows.end()) return invalid_argument;
  delete *found;
  windows.erase(found);
  return success;
}

EXPORTED int ncclAlltoAll(const void* from, void* to, size_t count, int type, void* made, void*) {
  const communicator& c = *static_cast<communicator*>(made);
  if (type != kFloat32 && type != kBfloat16) return invalid_argument;
  const size_t element = bytes_of(type), most = kSlot / element, all = count * c.ranks * element;
  const size_t from_at = c.offset_of(from, all), to_at = c.offset_of(to, all);
  if (from_at == c.kOutside || to_at == c.kOutside) return invalid_argument;
  if (!c.all_ask({0, type, count, from_at, to_at})) return invalid_usage;
  for (int part = 0; part < c.ranks; ++part) {
    for (size_t done = 0; done < count; done += most) {
      const size_t size = count - done < most ? count - done : most;
      const auto* const mine =
          static_cast<const std::byte*>(from) + (size_t(part) * count + done) * element;
      std::memcpy(c.shared->slots[c.rank], mine, size * element);
      c.meet();
      for (int r = 0; part == c.rank && r < c.ranks; ++r) {
        std::memcpy(static_cast<std::byte*>(to) + (size_t(r) * count + done) * element,
                    c.shared->slots[r], size * element);
      }
      c.meet();
    }
  }
  return success;
}

EXPORTED int ncclAllGather(const void* from, void* to, size_t count, int type, void* made, void*) {
  const communicator& c = *static_cast<communicator*>(made);
  if (!c.all_ask({1, type, count})) return invalid_usage;
  const size_t element = bytes_of(type), most = kSlot / element;
  for (size_t done = 0; done < count; done += most) {
    const size_t size = count - done < most ? count - done : most;
    std::memcpy(c.shared->slots[c.rank], static_cast<const std::byte*>(from) + done * element,
                size * element);
    c.meet();
    for (int r = 0; r < c.ranks; ++r) {
      std::memcpy(static_cast<std::byte*>(to) + (size_t(r) * count + done) * element,
                  c.shared->slots[r], size * element);
    }
    c.meet();
  }
  return success;
}

EXPORTED const char* ncclGetErrorString(int status) {
  if (status == invalid_argument) return "not in a window, or of another type";
  return status == invalid_usage ? "ranks ask for different things" : "no success";
}
