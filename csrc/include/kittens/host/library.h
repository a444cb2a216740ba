// Whether the kernels' library that a program has loaded is that of the headers it was compiled
// with. Plain C++, no CUDA header, no torch.
//
//   kittens::host::check_library();   // before any other call; throws error
//
// What a program passes are structs of the headers. A library of another version, or of other
// sources, may have other members in them, or the same elsewhere, and would read what is not there;
// the dynamic linker, who knows functions by name, does not notice.
#pragma once

#include <string>
#include <string_view>

#include "kittens/host/device.h"
#include "kittens/host/fingerprint.h"  // generated: kVersion, kHeaders

namespace kittens::host {

// Of the headers that a library was built from, and where it lies.
struct library_facts {
  const char *version, *headers, *file;
};

}  // namespace kittens::host

// Weak: a library that is older than this function lacks it, and is told from others all the same.
extern "C" KITTENS_EXPORT __attribute__((weak)) const kittens::host::library_facts*
thunderkittens_library();

namespace kittens::host {

inline void check_library() {
  const auto described = [](const std::string& version, const std::string& headers) {
    return version + " (headers " + headers + ")";
  };
  const std::string expected =
      "the kernels' library must be that of the headers which its caller was compiled with, " +
      described(kVersion, kHeaders) + ", got ";
  const std::string remedy = "; build both from the same sources";
  if (&thunderkittens_library == nullptr) {
    throw error(expected + "one that does not say its version" + remedy);
  }
  const library_facts& got = *thunderkittens_library();
  const std::string_view version = got.version, headers = got.headers;
  if (version == kVersion && headers == kHeaders) return;
  throw error(expected + got.file + " of " + described(got.version, got.headers) + remedy);
}

}  // namespace kittens::host
