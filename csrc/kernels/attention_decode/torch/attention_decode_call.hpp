// One call of attention_decode, and what the .cpp files of the op share.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/attention_decode/torch/cache_operand.hpp"

namespace thunderkittens {

// What a call was given, which outlives it; paged when page_table is there.
struct attention_decode_call {
  const Tensor &q, &k_cache, &v_cache, &seqlens;
  const optional_tensor& page_table;
  const std::optional<double>& scale;
  const std::optional<int64_t>& window_left;
  const double& softcap;
  const optional_tensor &sinks, &k_scale, &v_scale;

  cache_operand cache() const { return {k_cache, v_cache, seqlens, page_table}; }
  double scale_or_default() const;
};

// o, [B, Sq, Hq, D]; of at least one element.
Tensor attention_decode_by_aten(const attention_decode_call& c);

}  // namespace thunderkittens
