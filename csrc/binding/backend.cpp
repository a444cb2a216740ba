#include "binding/backend.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "binding/strict.h"

namespace thunderkittens {
namespace {

using kittens::host::device;

thread_local backend thread_backend = backend::automatic;
thread_local explanation* thread_explanation = nullptr;

std::vector<const kernel*>& kernels() {
  static std::vector<const kernel*> list;
  return list;
}

bool is_generic() { return thread_backend >= backend::automatic_generic; }
bool is_race() {
  return thread_backend == backend::simulator_race ||
         thread_backend == backend::simulator_race_generic;
}
bool is_simulator() {
  return thread_backend == backend::simulator || thread_backend == backend::simulator_generic ||
         is_race();
}

// Null where no build of the kernel runs on it.
const device* device_of(const kernel& k, int index) {
  const device* const found = kittens::host::find_device(index, is_generic());
  return found != nullptr && k.launchers->find(*found) != nullptr ? found : nullptr;
}

std::string why_no_kernel(const kernel& k, int index) {
  const device* const found = kittens::host::find_device(index, is_generic());
  return found == nullptr ? kittens::host::why_no_device(index) : k.launchers->why_not(*found);
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

decision kernel_decision(const kernel& wanted, c10::Device tensors, const device& on,
                         std::string_view why) {
  if (thread_explanation != nullptr) {
    std::string reason(why);
    if (wanted.launchers->takes_generic(on)) reason += "; it is the generic kernel";
    const char* const name = on.is_simulated() ? "simulator" : "cuda";
    *thread_explanation = {std::string(wanted.op), name, std::move(reason), {}};
  }
  return {&wanted, &on, thread_explanation != nullptr, tensors};
}

decision torch_decision(const kernel& wanted, std::string_view reason, bool fallback) {
  if (fallback) warn_or_raise(wanted, reason);
  if (thread_explanation != nullptr) {
    *thread_explanation = {std::string(wanted.op), "torch", std::string(reason), {}};
  }
  return {&wanted, nullptr, thread_explanation != nullptr};
}

const device& simulator() {
  using kittens::host::simulated_device;
  static constexpr device kDevices[2][2] = {
      {simulated_device(false, false), simulated_device(false, true)},
      {simulated_device(true, false), simulated_device(true, true)}};
  return kDevices[is_race()][is_generic()];
}

decision simulator_decision(const kernel& wanted, c10::Device tensors,
                            std::string_view unsupported) {
  TORCH_CHECK_VALUE(tensors.is_cpu(), wanted.op,
                    ": tensors must be on the cpu under backend('simulator'), got ", tensors);
  if (!unsupported.empty()) return torch_decision(wanted, unsupported, true);
  const device& on = simulator();
  if (wanted.launchers->find(on) == nullptr) {
    return torch_decision(wanted, wanted.launchers->why_not(on), true);
  }
  return kernel_decision(wanted, tensors, on, "backend('simulator') is active");
}

}  // namespace

bool is_strict() {
  const char* text = std::getenv("THUNDERKITTENS_STRICT");
  return text != nullptr && std::string_view(text) != "" && std::string_view(text) != "0";
}

backend current_backend() { return thread_backend; }
void set_backend(backend choice) { thread_backend = choice; }

kernel::kernel(std::string_view op, std::string_view entry)
    : op(op), entry(entry), launchers(&kittens::host::launchers(entry)) {
  kernels().push_back(this);
}

std::vector<const kernel*> all_kernels() { return kernels(); }

decision decide(const kernel& wanted, c10::Device tensors, std::string_view unsupported) {
  if (thread_backend == backend::torch) {
    return torch_decision(wanted, "backend('torch') is active", false);
  }
  if (is_simulator()) return simulator_decision(wanted, tensors, unsupported);
  if (!tensors.is_cuda()) {
    const bool cpu = tensors.is_cpu();
    return torch_decision(wanted, cpu ? "the tensors are on the cpu" : "the tensors hold no data",
                          false);
  }
  if (!unsupported.empty()) return torch_decision(wanted, unsupported, true);
  const device* const gpu = device_of(wanted, tensors.index());
  if (gpu == nullptr) return torch_decision(wanted, why_no_kernel(wanted, tensors.index()), true);
  return kernel_decision(wanted, tensors, *gpu, "a kernel was built for this GPU");
}

bool is_built(const kernel& wanted, c10::Device tensors) {
  if (is_simulator()) return wanted.launchers->find(simulator()) != nullptr;
  return !tensors.is_cuda() || device_of(wanted, tensors.index()) != nullptr;
}

decision leave_to_torch(const kernel& wanted, std::string_view reason) {
  return torch_decision(wanted, reason, false);
}

void set_warning_handler(warning_handler handler) { tell = handler; }

void begin_explaining(explanation* record) { thread_explanation = record; }
void end_explaining() { thread_explanation = nullptr; }
explanation* explaining() { return thread_explanation; }

void note_backward(const kernel& wanted, const device& on, std::string unsupported) {
  const bool built = wanted.launchers->find(on) != nullptr;
  if (unsupported.empty() && !built) unsupported = wanted.launchers->why_not(on);
  thread_explanation->notes.push_back(unsupported.empty()
                                          ? "its backward is computed by a kernel, too"
                                          : "its backward is computed by torch: " + unsupported);
}

void forget_warnings() {
  const std::lock_guard lock(warned_mutex);
  warned().clear();
}

std::string why_not(const kernel& wanted, int cuda_device) {
  return device_of(wanted, cuda_device) != nullptr ? "" : why_no_kernel(wanted, cuda_device);
}

bool takes_generic(const kernel& wanted, int cuda_device) {
  const device* const found = device_of(wanted, cuda_device);
  return found != nullptr && wanted.launchers->takes_generic(*found);
}

}  // namespace thunderkittens
