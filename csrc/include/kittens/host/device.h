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
enum class architecture { sm80, sm89, sm90a, simulator, simulator_race };

inline constexpr std::array kAllArchitectures = {architecture::sm80, architecture::sm89,
                                                 architecture::sm90a, architecture::simulator,
                                                 architecture::simulator_race};

constexpr const char* name(architecture a) {
  constexpr std::array kNames = {"sm_80", "sm_89", "sm_90a", "simulator", "simulator_race"};
  return kNames[static_cast<size_t>(a)];
}

using stream = void*;  // a cudaStream_t; null in the simulator

// What the simulator says it has: few, so that persistent kernels go round their loops.
inline constexpr int kSimulatedMultiprocessors = 4;

struct device {
  int major = 0, minor = 0;  // compute capability; 0 of the simulator
  int multiprocessors = kSimulatedMultiprocessors;
  int index = -1;     // CUDA's
  bool race = false;  // of the simulator: in race mode

  constexpr bool is_simulated() const { return major == 0; }
};

// The simulator, which runs kernels on the CPU when its library is loaded: _simulator.so, for race
// mode _simulator_race.so.
constexpr device simulated_device(bool race = false) { return {.race = race}; }

// The CUDA device, or null when there is none or no CUDA kernel is built in. The first answer
// stays.
KITTENS_EXPORT const device* find_device(int index);
// Why find_device returns null, in one sentence; empty when it does not.
KITTENS_EXPORT std::string why_no_device(int index);

}  // namespace kittens::host
