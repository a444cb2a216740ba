#include "binding/backend.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_set>

#include "binding/strict.h"

namespace thunderkittens {
namespace {

using kittens::host::architecture;
using kittens::host::launcher;

thread_local backend thread_backend = backend::automatic;
thread_local explanation* thread_explanation = nullptr;

std::vector<const kernel*>& kernels() {
  static std::vector<const kernel*> list;
  return list;
}

launcher entry_for(const kernel& k, architecture a) {
  return k.launchers->by_architecture[static_cast<size_t>(a)];
}

// The build that runs on a GPU: within one major version a binary runs on every later minor one,
// and sm_90a runs on 9.0 alone.
launcher entry_for_device(const kernel& k, const kittens::host::device& device) {
  if (device.major == 9 && device.minor == 0) return entry_for(k, architecture::sm90a);
  if (device.major != 8) return nullptr;
  const launcher newer = device.minor >= 9 ? entry_for(k, architecture::sm89) : nullptr;
  return newer != nullptr ? newer : entry_for(k, architecture::sm80);
}

std::string built_architectures(const kernel& k) {
  std::string list;
  for (const architecture a : kittens::host::kAllArchitectures) {
    if (a >= architecture::simulator || entry_for(k, a) == nullptr) continue;
    if (!list.empty()) list += ", ";
    list += kittens::host::name(a);
  }
  return list;
}

std::string why_no_kernel(const kernel& k, int device_index) {
  if (k.launchers == nullptr) return "no CUDA kernel in this release";
  const kittens::host::device* device = kittens::host::find_device(device_index);
  if (device == nullptr) return kittens::host::why_no_device(device_index);
  const std::string built = built_architectures(k);
  if (built.empty()) return "not built: select it in configs.py";
  return "the GPU is sm_" + std::to_string(device->major) + std::to_string(device->minor) +
         "; built for " + built;
}

void log_warning(const char* sentence) { TORCH_WARN(sentence); }

std::atomic<warning_handler> tell = log_warning;
std::mutex warned_mutex;
std::unordered_set<std::string>& warned() {
  static std::unordered_set<std::string> set;
  return set;
}

void warn_or_raise(const kernel& wanted, std::string_view reason) {
  const std::string sentence =
      std::string(wanted.op) + ": computed by torch: " + std::string(reason);
  TORCH_CHECK(!is_strict(), sentence, " (THUNDERKITTENS_STRICT=1 makes this an error)");
  if (thread_explanation != nullptr) return;
  {
    const std::lock_guard lock(warned_mutex);
    if (!warned().insert(sentence).second) return;
  }
  try {
    tell.load()(sentence.c_str());
  } catch (...) {  // a warning made an error: the next call raises too
    const std::lock_guard lock(warned_mutex);
    warned().erase(sentence);
    throw;
  }
}

decision torch_decision(const kernel& wanted, std::string_view reason, bool fallback) {
  if (fallback) warn_or_raise(wanted, reason);
  if (thread_explanation != nullptr) {
    *thread_explanation = {std::string(wanted.op), "torch", std::string(reason), {}};
    return {&wanted, nullptr, false, true};
  }
  return {&wanted, nullptr, false, false};
}

decision simulator_decision(const kernel& wanted, c10::Device device,
                            std::string_view unsupported) {
  TORCH_CHECK_VALUE(device.is_cpu(), wanted.op,
                    ": tensors must be on the cpu under backend('simulator'), got ", device);
  if (!unsupported.empty()) return torch_decision(wanted, unsupported, true);
  const architecture built_for = thread_backend == backend::simulator_race
                                     ? architecture::simulator_race
                                     : architecture::simulator;
  const launcher run = wanted.launchers ? entry_for(wanted, built_for) : nullptr;
  if (run == nullptr) return torch_decision(wanted, "the simulator has no kernel of this op", true);
  if (thread_explanation != nullptr) {
    *thread_explanation = {
        std::string(wanted.op), "simulator", "backend('simulator') is active", {}};
  }
  return {&wanted, run, true, thread_explanation != nullptr};
}

}  // namespace

bool is_strict() {
  const char* text = std::getenv("THUNDERKITTENS_STRICT");
  return text != nullptr && std::string_view(text) != "" && std::string_view(text) != "0";
}

backend current_backend() { return thread_backend; }
void set_backend(backend choice) { thread_backend = choice; }

kernel::kernel(std::string_view op, std::string_view entry)
    : op(op), entry(entry), launchers(entry.empty() ? nullptr : &kittens::host::launchers(entry)) {
  kernels().push_back(this);
}

std::vector<const kernel*> all_kernels() { return kernels(); }

decision decide(const kernel& wanted, c10::Device device, std::string_view unsupported) {
  if (thread_backend == backend::torch) {
    return torch_decision(wanted, "backend('torch') is active", false);
  }
  if (thread_backend == backend::simulator || thread_backend == backend::simulator_race) {
    return simulator_decision(wanted, device, unsupported);
  }
  if (!device.is_cuda()) {
    const bool cpu = device.is_cpu();
    return torch_decision(wanted, cpu ? "the tensors are on the cpu" : "the tensors hold no data",
                          false);
  }
  if (!unsupported.empty()) return torch_decision(wanted, unsupported, true);
  const kittens::host::device* gpu =
      wanted.launchers ? kittens::host::find_device(device.index()) : nullptr;
  const launcher run = gpu != nullptr ? entry_for_device(wanted, *gpu) : nullptr;
  if (run == nullptr) return torch_decision(wanted, why_no_kernel(wanted, device.index()), true);
  if (thread_explanation != nullptr) {
    *thread_explanation = {std::string(wanted.op), "cuda", "a kernel was built for this GPU", {}};
  }
  return {&wanted, run, false, thread_explanation != nullptr};
}

void set_warning_handler(warning_handler handler) { tell = handler; }

void begin_explaining(explanation* record) { thread_explanation = record; }
void end_explaining() { thread_explanation = nullptr; }
explanation* explaining() { return thread_explanation; }

void forget_warnings() {
  const std::lock_guard lock(warned_mutex);
  warned().clear();
}

std::string why_not(const kernel& wanted, int cuda_device) {
  const kittens::host::device* gpu =
      wanted.launchers ? kittens::host::find_device(cuda_device) : nullptr;
  const bool runs = gpu != nullptr && entry_for_device(wanted, *gpu) != nullptr;
  return runs ? "" : why_no_kernel(wanted, cuda_device);
}

}  // namespace thunderkittens
