#include "sim/options.hpp"

#include <charconv>
#include <cstdlib>

#include "kittens/host/launchers.h"

namespace kittens::sim {
namespace {

[[noreturn]] void refuse(std::string_view part) {
  throw host::error(
      "simulator options: expected eager, lazy, random:SEED, race, threads=N, residents=N, "
      "spin=SECONDS, facts=FILE, trace=FILE or block=N, separated by commas, got " +
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
  } else if (part == "race") {
    o.race = true;
  } else if (part.starts_with("threads=")) {
    o.os_threads = parse_number<int>(after("threads="), part, 0);
  } else if (part.starts_with("residents=")) {
    o.residents = parse_number<int>(after("residents="), part, 0);
  } else if (part.starts_with("spin=")) {
    o.spin_seconds = parse_number<double>(after("spin="), part, 0.0);
  } else if (part.starts_with("facts=")) {
    o.facts = after("facts=");
  } else if (part.starts_with("trace=")) {
    o.trace = after("trace=");
  } else if (part.starts_with("block=")) {
    o.trace_block = parse_number<int64_t>(after("block="), part, 0);
  } else {
    refuse(part);
  }
}

options from_environment() {
  const char* text = std::getenv("KITTENS_SIM");
  return text != nullptr ? parse_options(text) : options{};
}

// The calling thread's, so that no thread changes what another one asked for.
options& chosen() {
  thread_local options the_options = from_environment();
  return the_options;
}

thread_local std::string last_error, last_text;

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
  if (o.race) text += ",race";
  if (o.os_threads != 0) text += ",threads=" + std::to_string(o.os_threads);
  if (o.residents != 0) text += ",residents=" + std::to_string(o.residents);
  if (!o.facts.empty()) text += ",facts=" + o.facts;
  if (!o.trace.empty()) text += ",trace=" + o.trace;
  if (o.trace_block != 0) text += ",block=" + std::to_string(o.trace_block);
  return text;
}

options current_options() { return chosen(); }
void set_options(const options& o) { chosen() = o; }

}  // namespace kittens::sim

// The same for Python, by ctypes.
extern "C" {

// Sets this thread's options; 0, or −1 with the reason in kittens_sim_last_error().
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

// This thread's options, as kittens_sim_configure reads them, until its next call; null with the
// reason in kittens_sim_last_error().
KITTENS_EXPORT const char* kittens_sim_options() {
  using namespace kittens::sim;
  try {
    const options o = current_options();
    last_text = to_string(o) + ",spin=" + std::to_string(o.spin_seconds);
    return last_text.c_str();
  } catch (const std::exception& e) {
    last_error = e.what();
    return nullptr;
  }
}

// Why this thread's last call of the above failed.
KITTENS_EXPORT const char* kittens_sim_last_error() { return kittens::sim::last_error.c_str(); }
}
