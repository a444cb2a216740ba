// ceil_div(a, b): how many pieces of b hold a, neither below 0.
#pragma once

#include <cstdint>

namespace kittens::host {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace kittens::host
