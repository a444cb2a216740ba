// What the kernels' library says of itself.
#include "kittens/host/library.h"

#include <dlfcn.h>

const kittens::host::library_facts* thunderkittens_library() {
  static const kittens::host::library_facts facts = [] {
    Dl_info found{};
    const bool is_found =
        dladdr(reinterpret_cast<const void*>(&thunderkittens_library), &found) != 0;
    return kittens::host::library_facts{kittens::host::kVersion, kittens::host::kHeaders,
                                        is_found ? found.dli_fname : "a library"};
  }();
  return &facts;
}
