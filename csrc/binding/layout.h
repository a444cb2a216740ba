// How a tensor reaches a kernel that reads rows of `width` elements.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <string>

#include "binding/backend.h"
#include "kittens/host/dtype.h"

namespace thunderkittens {

// The kernels' name for a dtype; empty for float64, which ATen computes.
inline std::optional<kittens::host::dtype> kernel_dtype(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return kittens::host::dtype::float32;
    case at::kHalf: return kittens::host::dtype::float16;
    case at::kBFloat16: return kittens::host::dtype::bfloat16;
    default: return std::nullopt;
  }
}

// The same where a kernel's problem is asked why there is none: float32 for float64.
inline kittens::host::dtype kernel_dtype_or_float(at::ScalarType type) {
  return kernel_dtype(type).value_or(kittens::host::dtype::float32);
}

// Contiguous whatever the strides of `like`; also of symbolic sizes.
inline at::Tensor empty_contiguous(const at::Tensor& like) {
  return at::empty_symint(like.sym_sizes(), like.options());
}
// The same numbers with the strides that Meta promises, also of dimensions of size 1.
inline at::Tensor exactly_contiguous(const at::Tensor& t) {
  return t.defined() ? t.contiguous().view(-1).view(t.sizes()) : t;
}
// What stands for a result that nobody wants.
inline at::Tensor none(const at::Tensor& like) { return at::empty({0}, like.options()); }

// ---- What a kernel reads and writes -------------------------------------------------------------

// The addresses of what is read, and of what is written; null of what is not there. What is made
// among the arguments of `launch`, as by `contiguous`, lives until it has returned.
template <class T = void>
const T* input(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  if constexpr (std::is_void_v<T>) return t.const_data_ptr();
  if constexpr (!std::is_void_v<T>) return t.const_data_ptr<T>();
}
template <class T = void>
const T* input(const std::optional<at::Tensor>& t) {
  return t ? input<T>(*t) : nullptr;
}
template <class T = void>
T* output(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  if constexpr (std::is_void_v<T>) return t.mutable_data_ptr();
  if constexpr (!std::is_void_v<T>) return t.mutable_data_ptr<T>();
}
// Undefined where it is not there.
inline at::Tensor contiguous(const std::optional<at::Tensor>& t) {
  return t && t->defined() ? t->contiguous() : at::Tensor();
}

inline bool is_int64(const std::optional<at::Tensor>& t) {
  return t && t->scalar_type() == at::kLong;
}

// ---- Rows ---------------------------------------------------------------------------------------

// A dimension of size 1 has no stride to speak of.
inline int64_t stride_of(const at::Tensor& t, int64_t dim) {
  return t.size(dim) == 1 ? 0 : t.stride(dim);
}

// A tensor [..., width] read as [rows, width]: row r starts `stride` elements after row r − 1, and
// the last dimension is contiguous. `tensor` owns the memory: keep it until the launch has
// returned.
struct rows_view {
  at::Tensor tensor;
  int64_t stride;
};

// The distance between rows when the leading dimensions collapse into one and the last is
// contiguous, else empty. Strides of dimensions of size 1 mean nothing and are ignored; a stride of
// 0 (expand) is fine.
inline std::optional<int64_t> row_stride(const at::Tensor& t) {
  const int64_t last = t.dim() - 1;
  if (t.size(last) > 1 && t.stride(last) != 1) return std::nullopt;
  std::optional<int64_t> stride, next;  // of the rows; and what the next outer dimension must have
  for (int64_t i = last - 1; i >= 0; --i) {
    if (t.size(i) == 1) continue;
    if (next && t.stride(i) != *next) return std::nullopt;
    if (!stride) stride = t.stride(i);
    next = t.stride(i) * t.size(i);
  }
  return stride.value_or(t.size(last));
}

// `t` as rows: a view when its strides allow, else one contiguous copy.
inline rows_view as_rows(const at::Tensor& t) {
  if (const std::optional<int64_t> stride = row_stride(t)) return {t, *stride};
  return {t.contiguous(), t.size(-1)};
}

// Tells `explain` that a kernel will read a copy of `t`.
inline void note_copy(const at::Tensor& t, std::string_view name) {
  explanation* record = explaining();
  if (record == nullptr || row_stride(t)) return;
  record->notes.push_back(std::string(name) + " is copied first: its strides " +
                          c10::str(t.strides()) +
                          " are not those of contiguous rows one distance apart");
}

}  // namespace thunderkittens
