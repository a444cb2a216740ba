// The launcher table: which op can be launched on which architecture. Plain C++, no CUDA, no torch.
//
// A kernel file enters its launchers when its library is loaded; an op looks them up when it is
// called. What configs.py does not select is not in the table, and never an undefined symbol.
//
//   namespace thunderkittens { inline namespace KITTENS_TARGET {   // one file, several targets
//   void launch_forward(const norm_forward_params& p, kittens::host::stream s) { … }
//   KITTENS_LAUNCHER("layer_norm_forward", norm_forward_params, launch_forward);
//   }}
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// A function that other libraries find, in builds with -fvisibility=hidden.
#define KITTENS_EXPORT __attribute__((visibility("default")))

namespace kittens::host {

// What every function of kittens::host throws. Exported, so that one library can catch another's.
struct KITTENS_EXPORT error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// simulator_race: the simulator, of kernels that its race mode can look into.
enum class architecture { sm80, sm89, sm90a, simulator, simulator_race };

inline constexpr std::array kAllArchitectures = {architecture::sm80, architecture::sm89,
                                                 architecture::sm90a, architecture::simulator,
                                                 architecture::simulator_race};

constexpr const char* name(architecture a) {
  constexpr std::array kNames = {"sm_80", "sm_89", "sm_90a", "simulator", "simulator_race"};
  return kNames[static_cast<size_t>(a)];
}

using stream = void*;                                     // a cudaStream_t; null in the simulator
using launcher = void (*)(const void* params, stream s);  // throws kittens::host::error

struct op_launchers {
  // Index: architecture. Null where the op is not built. Atomic, because a library with more
  // launchers may be loaded while ops run.
  std::array<std::atomic<launcher>, kAllArchitectures.size()> by_architecture{};
  std::atomic<uint64_t> launches = 0;  // counted by whoever calls a launcher

  launcher find(architecture a) const { return by_architecture[static_cast<size_t>(a)]; }
};

// The entry of `op`, made at its first use. The reference stays valid; keep it.
KITTENS_EXPORT op_launchers& launchers(std::string_view op);
KITTENS_EXPORT void add_launcher(std::string_view op, architecture a, launcher f);
// The ops of the table, in alphabetical order.
KITTENS_EXPORT std::vector<std::string> all_ops();

struct device {
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
};

// What the simulator says it is: few, so that persistent kernels go round their loops.
inline constexpr int kSimulatedMultiprocessors = 4;

// Numbers in a device's memory, all 0 when no kernel that uses them runs.
struct counter_array {
  int* first = nullptr;
  int count = 0;
};

// What the CUDA side answers.
struct cuda_queries {
  // Asked once per device index; true: `found` is filled in, false: `why_not` is, with one
  // sentence.
  bool (*find_device)(int index, device& found, std::string& why_not);
  bool (*is_capturing)(stream s);
  counter_array (*find_counters)();
  std::optional<uint64_t> (*stream_id)(stream s);
};

// The CUDA side, when there is one, calls this at load, with what lives as long as the library. No
// CUDA call is made before find_device.
KITTENS_EXPORT void set_cuda_queries(const cuda_queries& queries);
// The device, or null when there is none or no CUDA kernel is built in. The first answer stays.
KITTENS_EXPORT const device* find_device(int index);
// Why find_device returns null, in one sentence; empty when it does not.
KITTENS_EXPORT std::string why_no_device(int index);
// Whether what is launched on the stream is recorded into a CUDA graph, to run any number of times
// later; false without CUDA.
KITTENS_EXPORT bool is_capturing(stream s);
// Those of the current device: for a kernel that counts, and leaves 0 behind. None without CUDA.
KITTENS_EXPORT counter_array find_counters();
// The number of a stream that is not being captured, which no other of the process ever has. (A
// handle is not enough: cudaStreamPerThread is a stream of each thread, and that of a stream that
// has been destroyed is given away again.) Nothing without CUDA, or where it does not know.
KITTENS_EXPORT std::optional<uint64_t> stream_id(stream s);

namespace detail {

template <class Params, void (*Function)(const Params&, stream)>
void launch_erased(const void* params, stream s) {
  Function(*static_cast<const Params*>(params), s);
}

struct entered_launcher {
  entered_launcher(std::string_view op, architecture a, launcher f) { add_launcher(op, a, f); }
};

}  // namespace detail
}  // namespace kittens::host

// KITTENS_TARGET names the architecture that a file is being compiled for (sm80, sm89, sm90a,
// simulator, simulator_race). The build gives it; without it the file is for whom its compiler
// compiles.
#if !defined(KITTENS_TARGET) && !defined(__CUDACC__)
#define KITTENS_TARGET simulator
#endif

#define KITTENS_JOIN_(a, b) a##b
#define KITTENS_JOIN(a, b) KITTENS_JOIN_(a, b)

// Enters `void function(const params&, kittens::host::stream)` as the launcher of `op`, at load.
#define KITTENS_LAUNCHER(op, params, function)                                                 \
  static const ::kittens::host::detail::entered_launcher KITTENS_JOIN(entered_, __COUNTER__) { \
    op, ::kittens::host::architecture::KITTENS_TARGET,                                         \
        &::kittens::host::detail::launch_erased<params, function>                              \
  }
