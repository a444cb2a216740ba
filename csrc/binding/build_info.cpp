#include "binding/build_info.h"

#include <build_info.h>  // generated: kBuildInfo

namespace thunderkittens {

const char* build_info_json() { return kBuildInfo; }

}  // namespace thunderkittens
