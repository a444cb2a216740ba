// What the kernels' library says of itself.
#include "kittens/host/library.h"

#include <link.h>

#include <algorithm>
#include <cstdint>

namespace {

// The file that an address has been loaded from. (dladdr would say it, too; but before glibc 2.34
// that is in a library of its own.)
struct search {
  uintptr_t address;
  const char* file = "a library";

  bool is_in(const dl_phdr_info& object) const {
    return std::any_of(object.dlpi_phdr, object.dlpi_phdr + object.dlpi_phnum,
                       [&](const auto& part) {
                         return part.p_type == PT_LOAD &&
                                address - (object.dlpi_addr + part.p_vaddr) < part.p_memsz;
                       });
  }
  static int look(dl_phdr_info* object, size_t, void* data) {
    auto& found = *static_cast<search*>(data);
    if (!found.is_in(*object)) return 0;
    if (*object->dlpi_name != '\0') found.file = object->dlpi_name;  // none: the program
    return 1;
  }
};

}  // namespace

const kittens::host::library_facts* thunderkittens_library() {
  static const kittens::host::library_facts facts = [] {
    search found{reinterpret_cast<uintptr_t>(&thunderkittens_library)};
    dl_iterate_phdr(&search::look, &found);
    return kittens::host::library_facts{kittens::host::kVersion, kittens::host::kHeaders,
                                        found.file};
  }();
  return &facts;
}
