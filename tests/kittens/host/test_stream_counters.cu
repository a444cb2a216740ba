// host/stream_counters.h: which launches share a device's counters. CUDA is played by the test.
#include "kittens/host/stream_counters.h"

#include <set>

#include "harness.h"

using namespace kittens;
using host::find_stream_counters;
using host::kMostCounters;

namespace {

// A handle of the test's: the stream behind it changes, as that of cudaStreamPerThread does from
// thread to thread, and that of a handle which CUDA gives away again.
struct handle {
  uint64_t id = 0;
  bool captured = false;
};

constexpr int kAll = 4096;
int memory[kAll];
int searches = 0;
const handle* of(host::stream s) { return static_cast<const handle*>(s); }

constexpr host::cuda_queries kCuda{
    [](int, host::device& found, std::string&) {
      found = host::device{.major = 9, .minor = 0, .multiprocessors = 132};
      return true;
    },
    [](host::stream s) { return of(s)->captured; },
    [] {
      ++searches;
      return host::counter_array{memory, kAll};
    },
    [](host::stream s) { return of(s)->id != 0 ? std::optional(of(s)->id) : std::nullopt; }};

TEST(launches_of_one_stream_share_numbers_and_others_do_not) {
  host::set_cuda_queries(kCuda);
  handle capture{.captured = true}, first{.id = 1}, second{.id = 2}, same{.id = 1};
  // No search while a stream is captured: CUDA might refuse it, and spoil the capture.
  CHECK(find_stream_counters(0, &capture, 1) == nullptr);
  CHECK_EQUAL(searches, 0);

  int* const own = find_stream_counters(0, &first, 1);
  CHECK(own != nullptr);
  CHECK(find_stream_counters(0, &first, 1) == own);
  CHECK(find_stream_counters(0, &same, 1) == own);  // another handle of it
  CHECK(find_stream_counters(0, &second, 1) != own);
  CHECK_EQUAL(searches, 1);

  first.id = 3;  // cudaStreamPerThread in another thread, or a handle used again
  CHECK(find_stream_counters(0, &first, 1) != own);
  first.id = 1;
  CHECK(find_stream_counters(0, &first, 1) == own);

  handle unknown;
  CHECK(find_stream_counters(0, &unknown, 1) == nullptr);
  CHECK(find_stream_counters(0, &first, kMostCounters + 1) == nullptr);
}

TEST(each_captured_launch_has_numbers_of_its_own) {
  host::set_cuda_queries(kCuda);
  handle captured{.id = 1, .captured = true}, stream{.id = 1};
  std::set<int*> known{find_stream_counters(0, &stream, 1)};
  for (int launch = 0; launch < 100; ++launch) {
    CHECK(known.insert(find_stream_counters(0, &captured, 1)).second);
  }
  CHECK(!known.contains(nullptr));
}

TEST(numbers_do_not_overlap_and_end) {
  host::set_cuda_queries(kCuda);
  std::set<int*> starts;
  handle stream{.id = 100};
  int given = 0;
  for (; given < kAll; ++stream.id, ++given) {
    int* const few = find_stream_counters(0, &stream, 3);
    int* const many = find_stream_counters(0, &stream, kMostCounters);
    if (few == nullptr || many == nullptr) break;
    for (int i = 0; i < 3; ++i) CHECK(starts.insert(few + i).second);
    for (int i = 0; i < kMostCounters; ++i) CHECK(starts.insert(many + i).second);
  }
  CHECK(given > 3 && given < kAll);
  for (int* n : starts) CHECK(n >= memory && n < memory + kAll);
  CHECK(find_stream_counters(0, &stream, kMostCounters) == nullptr);  // none are left
  stream.id = 100;
  CHECK(starts.contains(find_stream_counters(0, &stream, 3)));  // but of whoever has some
  CHECK(find_stream_counters(1, &stream, 3) != nullptr);        // and on another device
}

}  // namespace
