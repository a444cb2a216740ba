#include "kernels/attention_decode/torch/cache_operand.hpp"

#include <ATen/ATen.h>

#include <limits>

#include "binding/layout.h"

namespace thunderkittens {

void check_fp8(const char* op, const Tensor& k, const Tensor& v, const optional_tensor& k_scale,
               const optional_tensor& v_scale) {
  const at::ScalarType type = k.scalar_type();
  TORCH_CHECK_TYPE(v.scalar_type() == type, op, ": v_cache must have the dtype of k_cache, ", type,
                   ", got ", v.scalar_type());
  for (const auto& [name, scale] :
       {std::pair("k_scale", &k_scale), std::pair("v_scale", &v_scale)}) {
    TORCH_CHECK_VALUE(!scale->has_value() || type == at::kFloat8_e4m3fn, op, ": ", name,
                      " must be None where the caches are not of float8_e4m3fn, got them of ",
                      type);
  }
}

Tensor as_moved(const Tensor& t) {
  return t.scalar_type() == at::kFloat8_e4m3fn ? t.view(at::kByte) : t;
}

bool has_neighbours(const Tensor& t) { return t.size(-1) <= 1 || t.stride(-1) == 1; }

decode_strides decode_strides_of(const Tensor& t) {
  return {stride_of(t, 0), stride_of(t, 1), stride_of(t, 2)};
}

bool rows_start_at(const Tensor& t, int64_t bytes) {
  const decode_strides s = decode_strides_of(t);
  const int64_t apart = (s.batch | s.token | s.head) * t.element_size();
  const auto address = reinterpret_cast<int64_t>(t.const_data_ptr());
  return has_neighbours(t) && (address | apart) % bytes == 0;
}

Tensor as_entries(const Tensor& t) {
  if (t.scalar_type() == at::kInt && (t.numel() <= 1 || t.stride(-1) == 1)) return t;
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  return t.clamp(-1, kMost).to(at::kInt).contiguous();  // what is beyond an int stays out of range
}

decode_cache cache_operand::sizes() const {
  decode_cache c{.pages = k.size(0),
                 .page_size = k.size(1),
                 .k_strides = decode_strides_of(k),
                 .v_strides = decode_strides_of(v)};
  if (page_table) {
    c.paged = true;
    c.table_width = page_table->size(1);
    c.table_stride = page_table->size(1);
  }
  c.e4m3 = is_fp8();
  return c;
}

}  // namespace thunderkittens
