// THUNDERKITTENS_STRICT=1: what would only warn, or be told by NaN alone, raises.
#pragma once

namespace thunderkittens {

// Whether it is set now.
bool is_strict();

}  // namespace thunderkittens
