// What this library was built from: JSON, written by the build.
#pragma once

#include "binding/export.h"

namespace thunderkittens {

KITTENS_EXPORT const char* build_info_json();

}  // namespace thunderkittens
