#include "kernels/attention/torch/attention_operands.hpp"

#include <ATen/ATen.h>

#include <cstdint>

#include "binding/backend.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/torch/attention_reference.hpp"

namespace thunderkittens {
namespace {

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

// Why TMA cannot read the rows of all batches as one sequence; null when it can, or need not.
const char* why_not_flat(const attention_call& c, const Tensor& t) {
  if (!c.bounds_keys() || t.numel() == 0) return nullptr;
  return attention_flat_rows::why_not(t.size(0), t.size(1), strides_of(t));
}

}  // namespace

attention_strides strides_of(const Tensor& t) {
  if (t.dim() == 4) return {t.stride(0), t.stride(1), t.stride(2)};
  return {0, t.size(0) == 1 ? t.numel() : t.stride(0), t.stride(1)};
}

Tensor contiguous_sinks(const attention_call& c) {
  return c.sinks ? c.sinks->to(at::kFloat).contiguous() : Tensor();
}

Tensor key_operand(const attention_call& c, const Tensor& t) {
  const Tensor aligned = tma_operand(t);
  return why_not_flat(c, aligned) == nullptr ? aligned
                                             : aligned.clone(at::MemoryFormat::Contiguous);
}

void note_key_copy(const attention_call& c, const Tensor& t, const char* name) {
  note_tma_copy(t, name);
  const char* const reason = why_not_flat(c, t);
  if (reason == nullptr || why_copied(t) != nullptr) return;
  explaining()->notes.push_back(c10::str(name, " is copied first, for seqused_k or leftpad_k: ",
                                         reason, " (strides ", t.strides(), ")"));
}

Tensor operand_of_torch(const Tensor& t) {
  if (is_stand_in(t) || t.numel() == 0 || !(t.is_cpu() || t.is_cuda())) return t;
  return with_usual_strides(is_copied_for_torch(t) ? t.clone(at::MemoryFormat::Contiguous) : t);
}

}  // namespace thunderkittens
