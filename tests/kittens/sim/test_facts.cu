// facts.hpp: instructions, bytes, wavefronts and sectors, where they are known beforehand; and what
// a timeline has of a launch.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "kittens/arch/arch.cuh"
#include "planted.h"

using namespace kittens;
using testing::buffer;
using testing::report_of;
using testing::run;
using testing::with_options;

namespace {

// What a launch writes to a file that an option names.
template <class Launch>
std::string file_of(const std::string& option, Launch&& launch) {
  const std::string path = "/tmp/kittens_facts_" + std::to_string(getpid()) + ".json";
  {
    const with_options chosen(option + path);
    launch();
  }
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::remove(path.c_str());
  return text;
}

// `"name": 12` after the last `after`; 0 where it is not, as amounts of zero are left out.
int64_t number(const std::string& text, const std::string& after, const std::string& name) {
  const size_t begin = text.rfind(after), end = text.find('}', begin);
  if (begin == std::string::npos) return -1;
  const size_t at = text.find("\"" + name + "\": ", begin);
  return at < end ? std::stoll(text.substr(at + name.size() + 4)) : 0;
}

// Lane i of one warp loads a V from `stride` · i.
template <class V>
__global__ void strided(int stride, int lanes) {
  const auto* shared = arch::dynamic_shared() + stride * arch::lane_id();
  if (arch::lane_id() < lanes) arch::load_shared(reinterpret_cast<const V*>(shared));
}

struct cost {
  int64_t wavefronts, passes;
  friend bool operator==(const cost&, const cost&) = default;
  friend std::ostream& operator<<(std::ostream& to, const cost& c) {
    return to << c.wavefronts << " wavefronts in " << c.passes << " passes";
  }
};

template <class V>
cost strided_cost(int stride, int lanes = 32) {
  const std::string facts = file_of("eager,facts=", [&] {
    run(strided<V>, {.grid = {1}, .block = {32}, .shared_bytes = 32 * 1024}, stride, lanes);
  });
  CHECK_EQUAL(number(facts, "\"total\"", "shared_bytes"), lanes * int64_t{sizeof(V)});
  CHECK_EQUAL(number(facts, "\"lines\"", "instructions"), 1);
  return {number(facts, "\"lines\"", "wavefronts"), number(facts, "\"lines\"", "passes")};
}

TEST(bank_conflicts_of_strides) {
  CHECK_EQUAL(strided_cost<float>(4), (cost{1, 1}));
  CHECK_EQUAL(strided_cost<float>(0), (cost{1, 1}));  // one word for all
  CHECK_EQUAL(strided_cost<float>(8), (cost{2, 1}));
  CHECK_EQUAL(strided_cost<float>(12), (cost{1, 1}));  // odd strides meet no bank twice
  CHECK_EQUAL(strided_cost<float>(128), (cost{32, 1}));
  CHECK_EQUAL(strided_cost<float>(128, 5), (cost{5, 1}));
  CHECK_EQUAL(strided_cost<float>(132), (cost{1, 1}));
  CHECK_EQUAL(strided_cost<unsigned short>(2), (cost{1, 1}));  // two lanes a word
  CHECK_EQUAL(strided_cost<uint2>(8), (cost{2, 2}));
  CHECK_EQUAL(strided_cost<uint2>(16), (cost{4, 2}));
  CHECK_EQUAL(strided_cost<uint4>(16), (cost{4, 4}));
  CHECK_EQUAL(strided_cost<uint4>(16, 8), (cost{1, 1}));
  CHECK_EQUAL(strided_cost<uint4>(32), (cost{8, 4}));
  CHECK_EQUAL(strided_cost<uint4>(128), (cost{32, 4}));
}

__global__ void matrices(int pitch) {
  uint32_t words[4];
  const uint8_t* row = arch::dynamic_shared() + pitch * arch::lane_id();
  arch::load_matrix<false>(words, row);
}

TEST(bank_conflicts_of_ldmatrix) {
  const auto wavefronts = [](int pitch) {
    return number(
        file_of(
            "lazy,facts=",
            [&] { run(matrices, {.grid = {1}, .block = {32}, .shared_bytes = 32 * 256}, pitch); }),
        "\"lines\"", "wavefronts");
  };
  CHECK_EQUAL(wavefronts(16), 4);
  CHECK_EQUAL(wavefronts(32), 8);
  CHECK_EQUAL(wavefronts(128), 32);
  CHECK_EQUAL(wavefronts(144), 4);
}

// In each round the lanes of one half do something that the others do not, then all the same.
__global__ void diverges(const float* in, float* out) {
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    if (arch::lane_id() / 16 == i % 2) sum += arch::load_global(in + arch::lane_id());
    sum += arch::shuffle_xor(sum, 1);
  }
  arch::store_global(out + 2 * arch::thread_id(), sum);
}

TEST(lanes_that_come_together_execute_one_instruction) {
  const buffer<float> in(32), out(2 * 64);
  for (const char* order : {"eager,facts=", "lazy,facts=", "random:3,facts="}) {
    const std::string facts =
        file_of(order, [&] { run(diverges, {.grid = {1}, .block = {64}}, in.data(), out.data()); });
    CHECK_EQUAL(number(facts, "\"instructions\": {", "load_global"), 2 * 4);
    CHECK_EQUAL(number(facts, "\"instructions\": {", "shuffle_xor"), 2 * 4);
    CHECK_EQUAL(number(facts, "\"instructions\": {", "store_global"), 2);
    CHECK_EQUAL(number(facts, "\"total\"", "global_bytes"), 2 * (4 * 16 + 32) * 4);
    // A half's 64 bytes, and 32 words with gaps: two and eight sectors of each warp.
    CHECK_EQUAL(number(facts, "\"total\"", "sectors"), 2 * (4 * 2 + 8));
  }
}

__global__ void two_rounds() {
  if (arch::block_x() == 0) arch::sync_block();
  arch::sync_warp();
}

TEST(launches_of_a_process_are_in_one_file) {
  const std::string facts = file_of("random:1,threads=2,facts=", [] {
    run(two_rounds, {.grid = {3}, .block = {64}});
    run(two_rounds, {.grid = {2}, .block = {32}});
  });
  const size_t next = facts.find("\"grid\": [2, 1, 1]");
  const std::string first = facts.substr(0, next), second = facts.substr(next);
  CHECK_EQUAL(number(first, "\"instructions\": {", "sync_block"), 2);
  CHECK_EQUAL(number(second, "\"instructions\": {", "sync_block"), 1);
  CHECK(first.find("\"kernel\": \"two_rounds\"") != std::string::npos);
}

__global__ void waits_for_ever() {
  if (arch::thread_id() < 32) arch::named_barrier_sync(3, 64);
}

TEST(a_timeline_ends_with_the_report) {
  const std::string trace =
      file_of("eager,trace=", [] { report_of(waits_for_ever, {.grid = {2}, .block = {64}}); });
  CHECK(trace.find("waits for barrier 3: 32 of 64 threads have arrived") != std::string::npos);
  CHECK(trace.find("\"line\": \"test_facts.cu:") != std::string::npos);
  CHECK(trace.find("{\"report\": \"DEADLOCK") != std::string::npos);
}

TEST(a_timeline_of_a_block_that_is_not_there_says_so) {
  const std::string trace =
      file_of("lazy,block=7,trace=", [] { run(two_rounds, {.grid = {3}, .block = {32}}); });
  CHECK(trace.find("two_rounds has no block 7") != std::string::npos);
}

TEST(a_file_that_cannot_be_written_is_an_error) {
  const with_options chosen("eager,facts=/nowhere/at/all.json");
  const std::string thrown = report_of(two_rounds, 32);
  CHECK(thrown.find("/nowhere/at/all.json cannot be written: No such file") != std::string::npos);
}

TEST(options_come_back_as_they_were) {
  const char* const text = "random:7,threads=2,facts=f.json,trace=t.json,block=3";
  CHECK_EQUAL(sim::to_string(sim::parse_options(text)), std::string(text));
  CHECK(testing::error_of([] { sim::parse_options("block=-1"); }).find("block=N") !=
        std::string::npos);
}

}  // namespace
