// The element types a kernel takes, as host code names them: plain C++, no CUDA header, no torch.
#pragma once

#include <cstdint>

namespace kittens::host {

enum class dtype : int32_t { float32, float16, bfloat16 };

constexpr int64_t bytes_of(dtype t) { return t == dtype::float32 ? 4 : 2; }

}  // namespace kittens::host
