// The scale of scores, of whatever attends.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace thunderkittens {

// `scale`, or its default for keys of that width: width^−½.
inline double attention_scale(std::optional<double> scale, int64_t width) {
  return scale.value_or(width == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(width)));
}

}  // namespace thunderkittens
