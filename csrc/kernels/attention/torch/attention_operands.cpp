#include "kernels/attention/torch/attention_operands.hpp"

#include <ATen/ATen.h>

#include <cstdint>

#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {
namespace {

using at::Tensor;

constexpr int64_t kAccess = 16;  // bytes

// Whether rows share elements, as those of an expanded or unfolded tensor do.
bool rows_overlap(const Tensor& t) {
  for (int64_t i = 0; i + 1 < t.dim(); ++i) {
    if (t.size(i) > 1 && t.stride(i) < t.size(-1)) return true;
  }
  return false;
}

// Whether torch's fused attention cannot take the tensor where it lies.
bool is_copied_for_torch(const Tensor& t) {
  if (t.is_cpu()) return rows_overlap(t);
  // Of float64, and of rows that no copy could align, torch multiplies matrices, at any strides.
  const bool fused = t.scalar_type() != at::kDouble && t.size(-1) * t.element_size() % kAccess == 0;
  return fused && why_copied(t) != nullptr;
}

// Dimensions of size 1 whose strides are none of rows get those that they have in a contiguous one.
Tensor with_usual_strides(Tensor t) {
  const int64_t unit = kAccess / t.element_size();
  for (int64_t i = t.dim() - 2; i >= 0; --i) {
    const bool usual = t.stride(i) >= t.size(-1) && t.stride(i) % unit == 0;
    if (t.size(i) == 1 && !usual) t = t.squeeze(i).unsqueeze(i);
  }
  return t;
}

}  // namespace

const char* why_copied(const Tensor& t) {
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

Tensor operand(const Tensor& t) {
  if (t.numel() == 0 || why_copied(t) == nullptr) return t;
  return t.clone(at::MemoryFormat::Contiguous);  // contiguous() would keep a bad address
}

Tensor operand_of_torch(const Tensor& t) {
  if (is_stand_in(t) || t.numel() == 0 || !(t.is_cpu() || t.is_cuda())) return t;
  return with_usual_strides(is_copied_for_torch(t) ? t.clone(at::MemoryFormat::Contiguous) : t);
}

}  // namespace thunderkittens
