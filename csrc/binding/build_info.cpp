#include "binding/build_info.h"

#include <build_info.h>  // generated: kBuildInfo

#include <string>

#include "kittens/host/library.h"

namespace thunderkittens {

const char* build_info_json() { return kBuildInfo; }

const char* why_not_kernels() {
  static const std::string why = []() -> std::string {
    try {
      kittens::host::check_library();
    } catch (const kittens::host::error& e) {
      return e.what();
    }
    return "";
  }();
  return why.empty() ? nullptr : why.c_str();
}

}  // namespace thunderkittens
