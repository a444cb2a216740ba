#include "binding/tma_operand.h"

#include <ATen/ops/clone.h>

#include <cstdint>

#include "binding/backend.h"

namespace thunderkittens {

const char* why_copied(const at::Tensor& t) {
  constexpr int64_t kAccess = 16;                     // bytes
  constexpr int64_t kStrideLimit = int64_t{1} << 40;  // bytes, of TMA
  constexpr int64_t kRowLimit = int64_t{1} << 34;     // bytes, of TMA's packed rows
  if (t.stride(-1) != 1) return "the elements of a row are not neighbours";
  if (reinterpret_cast<uintptr_t>(t.const_data_ptr()) % kAccess != 0) {
    return "its address is not a multiple of 16 bytes";
  }
  const int64_t size = t.element_size();
  for (int64_t i = 0; i + 1 < t.dim(); ++i) {
    if (t.size(i) == 1) continue;
    const int64_t stride = t.stride(i);
    if (stride == 0) return "an expanded dimension has stride 0";
    if (stride % (kAccess / size) != 0) return "its strides are not multiples of 16 bytes";
    if (stride >= kStrideLimit / size) return "its strides reach 2^40 bytes";
    if (t.dim() == 3 && i == 0 && stride >= kRowLimit / size) {
      return "its rows are 2^34 bytes apart";
    }
  }
  return nullptr;
}

at::Tensor tma_operand(const at::Tensor& t) {
  if (t.numel() == 0 || why_copied(t) == nullptr) return t;
  return t.clone(at::MemoryFormat::Contiguous);  // contiguous() would keep a bad address
}

void note_tma_copy(const at::Tensor& t, const char* name) {
  const char* const reason = t.numel() == 0 ? nullptr : why_copied(t);
  if (reason == nullptr) return;
  explaining()->notes.push_back(
      c10::str(name, " is copied first: ", reason, " (strides ", t.strides(), ")"));
}

}  // namespace thunderkittens
