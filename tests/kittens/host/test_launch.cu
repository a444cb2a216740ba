// host/launch.cuh, host/dispatch.h and the launcher table: the same in both worlds.
#include "harness.h"
#include "kittens/arch/memory.cuh"
#include "kittens/arch/shared.cuh"
#include "kittens/arch/thread.cuh"
#include "kittens/host/block_shared.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/launchers.h"
#include "kittens/pipeline/programmatic_launch.cuh"

using namespace kittens;
using testing::buffer;
using testing::error_of;
using testing::run;

namespace {

__global__ void does_nothing() {}

std::string refusal(const host::launch_config& config) {
  const std::string why = error_of([&] { run(does_nothing, config); });
  CHECK_CONTAINS(why, "does_nothing");
  return why;
}

TEST(a_launch_that_the_hardware_cannot_take_is_refused) {
  const auto with_grid = [](int64_t x, int64_t y, int64_t z) {
    return refusal({.grid = {x, y, z}, .block = {32}});
  };
  CHECK_CONTAINS(with_grid(0, 1, 1), "grid x must be 1 to 2147483647, got 0");
  CHECK_CONTAINS(with_grid(int64_t{1} << 31, 1, 1), "got 2147483648");
  CHECK_CONTAINS(with_grid(-1, 1, 1), "got -1");
  CHECK_CONTAINS(with_grid(1, 65536, 1), "grid y must be 1 to 65535, got 65536");
  CHECK_CONTAINS(with_grid(1, 1, 0), "grid z must be 1 to 65535, got 0");
  const auto with_block = [](host::dim block) { return refusal({.grid = {1}, .block = block}); };
  CHECK_CONTAINS(with_block({0}), "block x must be 1 to 1024, got 0");
  CHECK_CONTAINS(with_block({1025}), "block x must be 1 to 1024, got 1025");
  CHECK_CONTAINS(with_block({32, 2}), "block y must be 1 to 1, got 2");
  // The kernel's own limit, which it has from __launch_bounds__.
  CHECK_CONTAINS(refusal({.grid = {1}, .block = {256}, .max_threads = 192}),
                 "block x must be 1 to 192, got 256");
  CHECK_CONTAINS(refusal({.grid = {1}, .block = {32}, .max_threads = 2048}),
                 "max_threads must be 1 to 1024, got 2048");
  const auto with_shared = [](int64_t bytes) {
    return refusal({.grid = {1}, .block = {32}, .shared_bytes = bytes});
  };
  CHECK_CONTAINS(with_shared(227 * 1024 + 1), "shared_bytes must be 0 to 232448, got 232449");
  CHECK_CONTAINS(with_shared(-1), "got -1");
  CHECK_CONTAINS(refusal({.grid = {3}, .block = {32}, .cluster = 2}),
                 "grid x must be a multiple of cluster (2), got 3");
}

struct parameters {
  int* out;
  int factor;
};

__global__ void fills(const __grid_constant__ parameters p) {
  p.out[arch::block_x() * arch::block_threads() + arch::thread_id()] = arch::thread_id() * p.factor;
}

TEST(a_launch_takes_the_largest_block_and_passes_parameters) {
  const buffer<int> out(2 * 1024);
  run(fills, {.grid = {2}, .block = {1024}}, {out.data(), 3});
  const std::vector<int> got = out.get();
  for (int i = 0; i < 2 * 1024; ++i) CHECK_EQUAL(got[i], i % 1024 * 3);
}

__global__ void walks(int* visits, int items) {
  for (int i = arch::block_x(); i < items; i += arch::grid_x()) {
    if (arch::thread_id() == i % 32) ++visits[i];
  }
}

TEST(persistent_kernels_go_round) {
  const buffer<int> visits(std::vector<int>(1000, 0));
  run(walks, {.grid = {host::multiprocessors()}, .block = {32}}, visits.data(), 1000);
  for (const int v : visits.get()) CHECK_EQUAL(v, 1);
}

// Each element comes from another block of the launch before, which may not have ended.
__global__ void moves_on(const int* from, int* to, int n) {
  begin_dependent_grid();
  const int i = arch::block_x() * arch::block_threads() + arch::thread_id();
  arch::store_global(to + i, arch::load_global(from + (i + n / 3) % n) + 1);
}

TEST(programmatic_launches_see_what_those_before_wrote) {
  constexpr int kBlocks = 300, kThreads = 128, kElements = kBlocks * kThreads, kRounds = 100;
  std::vector<int> first(kElements);
  for (int i = 0; i < kElements; ++i) first[i] = i;
  const buffer<int> a(first), b(kElements);
  const host::launch_config shape = {.grid = {kBlocks}, .block = {kThreads}};
  for (int round = 0; round < kRounds; ++round) {
    const int* from = round % 2 == 0 ? a.data() : b.data();
    int* to = round % 2 == 0 ? b.data() : a.data();
    if (round % 7 == 6) {  // some are ordinary
      host::launch(moves_on, shape, nullptr, from, to, kElements);
    } else {
      host::launch_programmatic(moves_on, shape, nullptr, from, to, kElements);
    }
  }
  const std::vector<int> got = a.get();
  for (int i = 0; i < kElements; ++i) {
    CHECK_EQUAL(got[i], (i + kElements / 3 * kRounds) % kElements + kRounds);
  }
}

TEST(dispatch_calls_the_instance_of_the_value) {
  const auto doubled = [](int64_t d) {
    return host::dispatch<64, 128, 256>("head_dim", d, [&]<int D> { return 2 * D; });
  };
  CHECK_EQUAL(doubled(64), 128);
  CHECK_EQUAL(doubled(256), 512);
  CHECK_EQUAL(error_of([&] { doubled(96); }), "head_dim = 96 is not one of 64, 128, 256");
}

void launch_fills(const parameters& p, host::stream s) {
  host::launch(fills, {.grid = {1}, .block = {32}}, s, p);
}

constexpr host::kernel_entry<parameters> kFills{"test_fills"};

KITTENS_LAUNCHER(kFills, launch_fills);

TEST(a_launcher_is_found_by_its_entry_and_architecture) {
  host::op_launchers& entry = host::launchers("test_fills");
  CHECK(&entry == &host::launchers("test_fills"));
  CHECK(!entry.is_built_for(host::architecture::sm89));
  CHECK(!host::launchers("no_such_op").is_built_for(host::architecture::KITTENS_TARGET));
  CHECK(entry.is_built_for(host::architecture::KITTENS_TARGET));
  const host::launcher found =
      entry.find(host::architecture::KITTENS_TARGET, host::kernel_kind::generic);
  CHECK(found != nullptr);
  const buffer<int> out(32);
  const parameters p{out.data(), 5};
  found(&p, nullptr);
  CHECK_EQUAL(out.get()[31], 31 * 5);
  bool listed = false;
  for (const std::string& op : host::all_ops()) listed |= op == "test_fills";
  CHECK(listed);
}

#if KITTENS_SIMULATED
constexpr host::device gpu(int major, int minor) {
  return {.major = major, .minor = minor, .multiprocessors = 132, .index = 0};
}

TEST(a_handle_launches_on_a_device_that_there_is_a_build_for) {
  const host::kernel_handle fills(kFills);
  constexpr bool kRace = host::architecture::KITTENS_TARGET == host::architecture::simulator_race;
  const host::device here = host::simulated_device(kRace);
  CHECK_EQUAL(fills.name(), "test_fills");
  CHECK_EQUAL(fills.why_not(here), "");
  const buffer<int> out(32);
  const uint64_t before = host::launchers("test_fills").launches;
  fills.on(here).launch({out.data(), 7}, nullptr);
  CHECK_EQUAL(out.get()[31], 31 * 7);
  CHECK_EQUAL(host::launchers("test_fills").launches - before, 1u);
}

constexpr host::kernel_entry<parameters> kNowhere{"test_nowhere"};

TEST(a_handle_says_why_there_is_none) {
  const host::kernel_handle nowhere(kNowhere);
  CHECK_EQUAL(nowhere.why_not(host::simulated_device()), "the simulator has no kernel of this op");
  CHECK_EQUAL(nowhere.why_not(gpu(9, 0)), "left out of this build, by make demo or configs.py");
  CHECK_EQUAL(error_of([&] { nowhere.on(gpu(9, 0)); }),
              "test_nowhere: left out of this build, by make demo or configs.py");
}

// A launcher that is never called.
host::launcher launch(int number) {
  return reinterpret_cast<host::launcher>(static_cast<intptr_t>(number));
}
using host::architecture;
constexpr auto kSpecialised = host::kernel_kind::specialised, kGeneric = host::kernel_kind::generic;

// A binary runs on later devices of its major version; sm_90a on 9.0 alone.
TEST(a_device_gets_the_newest_build_that_runs_there) {
  host::add_launcher("test_builds", architecture::sm80, kGeneric, launch(80));
  host::op_launchers& entry = host::launchers("test_builds");
  CHECK(entry.find(gpu(8, 0)) == launch(80) && entry.find(gpu(8, 9)) == launch(80));
  CHECK(entry.find(gpu(9, 0)) == nullptr);
  CHECK_EQUAL(entry.why_not(gpu(9, 0)), "the GPU is sm_90; built for sm_80");
  host::add_launcher("test_builds", architecture::sm89, kGeneric, launch(89));
  host::add_launcher("test_builds", architecture::sm90a, kGeneric, launch(90));
  CHECK(entry.find(gpu(8, 6)) == launch(80) && entry.find(gpu(8, 9)) == launch(89));
  CHECK(entry.find(gpu(9, 0)) == launch(90) && entry.find(gpu(9, 1)) == nullptr);
  CHECK(entry.find(gpu(10, 0)) == nullptr && entry.find(gpu(7, 5)) == nullptr);
  CHECK_EQUAL(entry.why_not(gpu(10, 0)), "the GPU is sm_100; built for sm_80, sm_89, sm_90a");
  host::add_launcher("test_builds", architecture::sm100, kGeneric, launch(100));
  CHECK(entry.find(gpu(10, 3)) == launch(100) && entry.find(gpu(12, 0)) == nullptr);
}

constexpr host::device wanting_generic(host::device d) {
  d.generic = true;
  return d;
}

TEST(the_kind_of_a_launcher_is_that_of_its_file) {
  CHECK(host::kind_of("csrc/kernels/norm/norm_sm90.cu") == kSpecialised);
  CHECK(host::kind_of("csrc/kernels/norm/norm.cu") == kGeneric);
  CHECK(host::kind_of("csrc/kernels/norm_sm90.cu/norm.cu") == kGeneric);
}

TEST(a_specialised_launcher_goes_first) {
  host::add_launcher("test_kinds", architecture::sm90a, kGeneric, launch(1));
  host::add_launcher("test_kinds", architecture::sm80, kGeneric, launch(2));
  host::op_launchers& entry = host::launchers("test_kinds");
  CHECK(entry.find(gpu(9, 0)) == launch(1) && !entry.takes_generic(gpu(9, 0)));  // of one kind
  host::add_launcher("test_kinds", architecture::sm90a, kSpecialised, launch(3));
  CHECK(entry.find(gpu(9, 0)) == launch(3) && !entry.takes_generic(gpu(9, 0)));
  CHECK(entry.find(wanting_generic(gpu(9, 0))) == launch(1));
  CHECK(entry.takes_generic(wanting_generic(gpu(9, 0))));
  CHECK(entry.find(gpu(8, 6)) == launch(2) && entry.takes_generic(gpu(8, 6)));
  CHECK(!entry.takes_generic(gpu(12, 0)));
}

TEST(a_generic_launcher_that_is_missing_is_not_replaced) {
  host::add_launcher("test_special", architecture::sm90a, kSpecialised, launch(1));
  host::op_launchers& entry = host::launchers("test_special");
  CHECK(entry.find(gpu(9, 0)) == launch(1));
  CHECK(entry.find(wanting_generic(gpu(9, 0))) == nullptr);
  CHECK_EQUAL(entry.why_not(wanting_generic(gpu(9, 0))),
              "it has no generic kernel for this device");
  CHECK_EQUAL(entry.why_not(wanting_generic(gpu(8, 0))), "the GPU is sm_80; built for sm_90a");
}

TEST(a_second_launcher_of_a_kind_is_refused) {
  host::add_launcher("test_twice", architecture::sm80, kGeneric, launch(1));
  host::add_launcher("test_twice", architecture::sm80, kSpecialised, launch(2));
  host::add_launcher("test_twice", architecture::sm89, kGeneric, launch(3));
  host::op_launchers& entry = host::launchers("test_twice");
  CHECK(entry.find(gpu(8, 0)) == launch(2));
  host::add_launcher("test_twice", architecture::sm80, kGeneric, launch(4));
  CHECK(entry.find(gpu(8, 0)) == nullptr && entry.find(gpu(8, 9)) == nullptr);
  const host::kernel_handle twice(host::kernel_entry<parameters>{"test_twice"});
  CHECK_EQUAL(error_of([&] { twice.on(gpu(8, 0)); }),
              "test_twice: two kernels of one kind were entered for one architecture");
}

TEST(shared_memory_of_architectures) {
  CHECK_EQUAL(host::facts_of(architecture::sm80).block_shared_kb, 163);
  CHECK(host::fits_every_architecture(99 * 1024));
  CHECK(!host::fits_every_architecture(99 * 1024 + 1));
  for (const architecture a : host::kAllArchitectures) {
    const host::architecture_facts& facts = host::facts_of(a);
    CHECK_EQUAL(facts.multiprocessor_shared_kb, facts.block_shared_kb + 1);
    if (a >= architecture::simulator) continue;
    const std::string number = std::to_string(facts.major) + std::to_string(facts.minor);
    CHECK_EQUAL("sm_" + number + (number == "90" ? "a" : ""), host::name(a));
  }
}

TEST(shared_memory_that_all_have_who_run_a_build) {
  for (const architecture a : host::kAllArchitectures) {
    const int own = host::facts_of(a).block_shared_kb;
    CHECK_EQUAL(host::least_block_shared_kb(a), a == architecture::sm80 ? 99 : own);
  }
  CHECK(host::block_shared_kb() >= 99);
  const auto asked = [] { return host::for_block_shared_kb([]<int Kb> { return Kb; }); };
  CHECK_EQUAL(asked(), host::facts_of(architecture::KITTENS_TARGET).block_shared_kb);
  // As if its code ran here, on what has more than it asks for.
  CHECK_EQUAL(host::for_block_shared_kb<architecture::sm80>([]<int Kb> { return Kb; }), 163);
}
#endif

TEST(a_device_is_found_or_the_reason_given) {
  for (const int index : {0, -1, 1000}) {
    const host::device* found = host::find_device(index);
    CHECK(found == host::find_device(index));
    CHECK((found == nullptr) == !host::why_no_device(index).empty());
  }
  CHECK(host::find_device(-1) == nullptr);
}

#if KITTENS_SIMULATED
int queries = 0;

TEST(the_device_query_is_asked_once_for_each_index) {
  static constexpr host::cuda_queries kAnswers{
      [](int index, host::device& found, std::string& why_not) {
        ++queries;
        found = host::device{.major = 9, .minor = 0, .multiprocessors = 132};
        if (index != 0) why_not = "there is one device";
        return index == 0;
      },
      [](host::stream s) { return s != nullptr; }, [] { return host::counter_array{&queries, 1}; },
      [](host::stream) { return std::optional<uint64_t>(7); }};
  CHECK(!host::is_capturing(nullptr));
  CHECK_EQUAL(host::find_counters().count, 0);
  CHECK(!host::stream_id(nullptr));
  host::set_cuda_queries(kAnswers);
  for (int round = 0; round < 3; ++round) {
    CHECK_EQUAL(host::find_device(0)->multiprocessors, 132);
    CHECK_EQUAL(host::find_device(0)->index, 0);
    CHECK_EQUAL(host::why_no_device(0), "");
    CHECK(!host::find_device(0)->generic && host::find_device(0, true)->generic);
    CHECK_EQUAL(host::find_device(0, true)->major, 9);
    CHECK(host::find_device(1) == nullptr && host::find_device(1, true) == nullptr);
    CHECK_EQUAL(host::why_no_device(1), "there is one device");
  }
  CHECK_EQUAL(queries, 2);
  int stream = 0;
  CHECK(host::is_capturing(&stream));
  CHECK(host::find_counters().first == &queries);
  CHECK_EQUAL(*host::stream_id(nullptr), 7u);
  CHECK(!host::is_capturing(nullptr));
}
#endif

}  // namespace
