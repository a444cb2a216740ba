// A sentence out of words and numbers.
#pragma once

#include <sstream>
#include <string>

namespace kittens::host {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

}  // namespace kittens::host
