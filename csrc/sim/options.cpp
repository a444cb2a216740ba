#include "sim/options.hpp"

#include <charconv>
#include <cstdlib>
#include <mutex>

#include "kittens/host/launchers.h"

namespace kittens::sim {
namespace {

[[noreturn]] void refuse(std::string_view part) {
  throw host::error(
      "simulator options: expected eager, lazy, random:SEED, threads=N or "
      "spin=SECONDS, separated by commas, got " +
      std::string(part));
}

template <class T>
T parse_number(std::string_view text, std::string_view part, T least) {
  T value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || value < least) refuse(part);
  return value;
}

void parse_part(std::string_view part, options& o) {
  const auto after = [&](std::string_view prefix) { return part.substr(prefix.size()); };
  if (part == "eager") {
    o.policy = policy::eager;
  } else if (part == "lazy") {
    o.policy = policy::lazy;
  } else if (part == "random") {
    o.policy = policy::random;
  } else if (part.starts_with("random:")) {
    o.policy = policy::random;
    o.seed = parse_number<uint64_t>(after("random:"), part, 0);
  } else if (part.starts_with("threads=")) {
    o.os_threads = parse_number<int>(after("threads="), part, 0);
  } else if (part.starts_with("spin=")) {
    o.spin_seconds = parse_number<double>(after("spin="), part, 0.0);
  } else {
    refuse(part);
  }
}

struct shared_options {
  std::mutex mutex;
  options value;

  shared_options() {
    if (const char* text = std::getenv("KITTENS_SIM")) value = parse_options(text);
  }
};

shared_options& chosen() {
  static shared_options the_options;
  return the_options;
}

thread_local std::string last_error;

}  // namespace

options parse_options(std::string_view text) {
  options o;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    parse_part(text.substr(0, comma), o);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  return o;
}

std::string to_string(const options& o) {
  std::string text = o.policy == policy::eager  ? "eager"
                     : o.policy == policy::lazy ? "lazy"
                                                : "random:" + std::to_string(o.seed);
  if (o.os_threads != 0) text += ",threads=" + std::to_string(o.os_threads);
  return text;
}

options current_options() {
  shared_options& s = chosen();
  const std::lock_guard lock(s.mutex);
  return s.value;
}

void set_options(const options& o) {
  shared_options& s = chosen();
  const std::lock_guard lock(s.mutex);
  s.value = o;
}

}  // namespace kittens::sim

// The same for Python, by ctypes.
extern "C" {

// Sets the options; 0, or −1 with the reason in kittens_sim_last_error().
KITTENS_EXPORT int kittens_sim_configure(const char* text) {
  using namespace kittens::sim;
  try {
    set_options(parse_options(text != nullptr ? text : ""));
    return 0;
  } catch (const std::exception& e) {
    last_error = e.what();
    return -1;
  }
}

// Why this thread's last kittens_sim_configure failed.
KITTENS_EXPORT const char* kittens_sim_last_error() { return kittens::sim::last_error.c_str(); }
}
