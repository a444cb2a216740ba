// What this library was built from: JSON, written by the build.
#pragma once

#include "binding/export.h"

namespace thunderkittens {

KITTENS_EXPORT const char* build_info_json();

// Why this library cannot call the kernels' library that has been loaded with it, such as one of
// another build; null where it can. (kittens/host/library.h)
KITTENS_EXPORT const char* why_not_kernels();

}  // namespace thunderkittens
