// How vmap's rule (binding/vmap.h) knows the level of the transform that a call has reached:
// torch's header of it includes one that torch does not ship, so the Python module asks Python.
#pragma once

#include <cstdint>

#include "binding/export.h"

namespace thunderkittens {

using level_reader = int64_t (*)();
KITTENS_EXPORT void set_level_reader(level_reader reader);

}  // namespace thunderkittens
