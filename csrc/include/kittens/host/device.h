// Where kernels run: a CUDA device, or the simulator. Plain C++, no CUDA header, no torch.
#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

// A function that other libraries find, in builds with -fvisibility=hidden.
#define KITTENS_EXPORT __attribute__((visibility("default")))

namespace kittens::host {

// What every function of kittens::host throws. Exported, so that one library can catch another's.
struct KITTENS_EXPORT error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// For what a kernel is compiled. simulator_race: for the simulator, and its race mode can look in.
enum class architecture { sm80, sm86, sm89, sm90a, sm100, sm103, sm120, simulator, simulator_race };

inline constexpr std::array kAllArchitectures = {
    architecture::sm80,  architecture::sm86,      architecture::sm89,
    architecture::sm90a, architecture::sm100,     architecture::sm103,
    architecture::sm120, architecture::simulator, architecture::simulator_race};

// The compute capability of its first GPU, and shared memory in KB: of a multiprocessor, and the
// most that a block may ask for. (CUDA C++ Programming Guide, Compute Capabilities. The simulator
// is as large as a Hopper GPU.)
struct architecture_facts {
  const char* name;
  int major, minor;
  int multiprocessor_shared_kb, block_shared_kb;
};
inline constexpr std::array<architecture_facts, kAllArchitectures.size()> kArchitectureFacts = {{
    {"sm_80", 8, 0, 164, 163},
    {"sm_86", 8, 6, 100, 99},
    {"sm_89", 8, 9, 100, 99},
    {"sm_90a", 9, 0, 228, 227},
    {"sm_100", 10, 0, 228, 227},
    {"sm_103", 10, 3, 228, 227},
    {"sm_120", 12, 0, 100, 99},
    {"simulator", 0, 0, 228, 227},
    {"simulator_race", 0, 0, 228, 227},
}};

constexpr const architecture_facts& facts_of(architecture a) {
  return kArchitectureFacts[static_cast<size_t>(a)];
}
constexpr const char* name(architecture a) { return facts_of(a).name; }

// Whether a block may ask for that much shared memory on every architecture: for a static_assert
// beside a kernel that is compiled for all of them.
constexpr bool fits_every_architecture(size_t shared_bytes) {
  for (const architecture_facts& facts : kArchitectureFacts) {
    if (shared_bytes > static_cast<size_t>(facts.block_shared_kb) * 1024) return false;
  }
  return true;
}

using stream = void*;  // a cudaStream_t; null in the simulator

// What the simulator says it has: few, so that persistent kernels go round their loops.
inline constexpr int kSimulatedMultiprocessors = 4;

struct device {
  int major = 0, minor = 0;  // compute capability; 0 of the simulator
  int multiprocessors = kSimulatedMultiprocessors;
  int index = -1;        // CUDA's
  bool race = false;     // of the simulator: in race mode
  bool generic = false;  // launches generic kernels, even where there are specialised ones

  constexpr bool is_simulated() const { return major == 0; }
};

// The simulator, which runs kernels on the CPU when its library is loaded: _simulator.so, for race
// mode _simulator_race.so.
constexpr device simulated_device(bool race = false, bool generic = false) {
  return {.race = race, .generic = generic};
}

// The CUDA device, or null when there is none or no CUDA kernel is built in. The first answer
// stays. `generic`: the same device, for generic kernels.
KITTENS_EXPORT const device* find_device(int index, bool generic = false);
// Why find_device returns null, in one sentence; empty when it does not.
KITTENS_EXPORT std::string why_no_device(int index);

}  // namespace kittens::host
