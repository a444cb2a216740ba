#include "sim/list_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "kittens/host/launchers.h"

namespace kittens::sim {
namespace {

constexpr std::string_view kEnd = "\n]}\n";

struct close_file {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using file = std::unique_ptr<std::FILE, close_file>;

// The files that this process has begun.
struct begun_files {
  std::mutex mutex;
  std::set<std::string> paths;
};

begun_files& begun() {
  static auto* const the_files = new begun_files;
  return *the_files;
}

bool write(std::FILE* to, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), to) == text.size();
}

}  // namespace

void append_to_list(const std::string& path, std::string_view head, std::string_view item) {
  begun_files& all = begun();
  const std::lock_guard lock(all.mutex);
  file to;
  if (all.paths.contains(path)) to.reset(std::fopen(path.c_str(), "r+e"));
  const bool is_new = to == nullptr;
  if (is_new) to.reset(std::fopen(path.c_str(), "we"));
  bool is_written = to != nullptr;
  if (is_written && is_new) {
    is_written = write(to.get(), head) && write(to.get(), "[\n");
  } else if (is_written) {
    is_written = std::fseek(to.get(), -static_cast<long>(kEnd.size()), SEEK_END) == 0 &&
                 write(to.get(), ",\n");
  }
  is_written =
      is_written && write(to.get(), item) && write(to.get(), kEnd) && std::fflush(to.get()) == 0;
  if (!is_written) {
    throw host::error("simulator: " + path + " cannot be written: " + std::strerror(errno));
  }
  all.paths.insert(path);
}

std::string quoted_json(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      result += code;
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace kittens::sim
