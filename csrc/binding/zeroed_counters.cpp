#include "binding/zeroed_counters.h"

#include <ATen/ops/zeros.h>

#include "kittens/host/stream_counters.h"

namespace thunderkittens {

zeroed_counters find_zeroed_counters(const kittens::host::device& device, c10::Device tensors,
                                     kittens::host::stream stream, int64_t count) {
  int* const own = device.is_simulated()
                       ? nullptr
                       : kittens::host::find_stream_counters(device.index, stream, count);
  if (own != nullptr) return {own, {}};
  at::Tensor memory = at::zeros({count}, at::TensorOptions(tensors).dtype(at::kInt));
  return {memory.mutable_data_ptr<int>(), memory};
}

}  // namespace thunderkittens
