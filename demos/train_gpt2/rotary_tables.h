// Cosines and sines of the angles by which a position turns q and k: pair i, of elements i and
// i + head_dim / 2, by position · theta^(−2 i / head_dim).
#pragma once

#include <cmath>
#include <vector>

#include "parameters.h"

namespace gpt2 {

struct rotary_tables {
  std::vector<float> cos, sin;  // [positions, head_dim / 2]

  rotary_tables(const config& c, int64_t positions) {
    const int64_t pairs = c.head_dim() / 2;
    for (int64_t position = 0; position < positions; ++position) {
      for (int64_t i = 0; i < pairs; ++i) {
        const double exponent = -double(i) / double(pairs);
        const double angle = double(position) * std::pow(c.theta, exponent);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
};

}  // namespace gpt2
