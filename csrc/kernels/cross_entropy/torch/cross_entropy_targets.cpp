// Targets that are no columns: an error on the CPU; of a kernel, which nobody waits for, NaN in
// their rows, and under THUNDERKITTENS_STRICT=1 an error of a later call.
#include <ATen/ATen.h>

#include <atomic>
#include <map>
#include <mutex>

#include "binding/launch.h"
#include "binding/strict.h"
#include "kernels/cross_entropy/torch/cross_entropy_call.hpp"

namespace thunderkittens {

void check_targets(std::string_view op, const loss_options& o, const Tensor& targets,
                   int64_t columns, const char* named) {
  if (!targets.is_cpu()) return;
  const Tensor outside =
      targets.lt(0).logical_or_(targets.ge(columns)).logical_and_(targets.ne(o.ignore_index));
  if (!outside.any().item<bool>()) return;
  TORCH_CHECK_INDEX(false, op, ": targets must be >= 0 and < ", columns, " (", named, ") or ",
                    o.ignore_index, " (ignore_index), got ",
                    targets.masked_select(outside)[0].item<int64_t>());
}

namespace {

bool is_captured(c10::Device device) {
  if (!device.is_cuda()) return false;
  const c10::DeviceGuard guard(device);
  return kittens::host::is_capturing(current_stream(device));
}

// The word of a device, for good, as graphs keep its address: 0, or a target that was no column.
// Pinned memory of the host, which kernels write to and nobody has to copy. None is made while the
// current stream is captured: null, then, unless there is one.
int64_t* word_of(const decision& d) {
  static int64_t simulated = 0;
  if (d.on->is_simulated()) return &simulated;
  static std::mutex mutex;
  static auto* const words = new std::map<c10::DeviceIndex, Tensor>;
  const std::lock_guard lock(mutex);
  Tensor& word = (*words)[d.device.index()];
  if (!word.defined()) {
    if (is_captured(d.device)) return nullptr;
    const c10::DeviceGuard guard(d.device);
    word = at::empty({1}, at::TensorOptions(at::kLong).pinned_memory(true));
    *word.mutable_data_ptr<int64_t>() = 0;
  }
  return word.mutable_data_ptr<int64_t>();
}

}  // namespace

int64_t* word_for_target_outside(const decision& d) {
  return d.on != nullptr && is_strict() ? word_of(d) : nullptr;
}

void raise_target_outside(const decision& d) {
  int64_t* const word = word_for_target_outside(d);
  if (word == nullptr) return;
  const std::atomic_ref<int64_t> shared(*word);
  if (shared.load(std::memory_order_relaxed) == 0 || is_captured(d.device)) return;
  const int64_t target = shared.exchange(0);
  TORCH_CHECK_INDEX(target == 0, d.chosen->op, ": targets of an earlier call on ", d.device,
                    " must be columns of its logits or its ignore_index, got ", target,
                    " (its row got NaN; THUNDERKITTENS_STRICT=1 makes this an error)");
}

}  // namespace thunderkittens
