// For tests of the simulator itself: options for a scope, and the report of a launch.
#pragma once

#include <string>
#include <string_view>

#include "harness.h"
#include "sim/options.hpp"

namespace kittens::testing {

// Sets the simulator's options, and sets them back at the end of the scope.
class with_options {
 public:
  explicit with_options(std::string_view text) : before_(sim::current_options()) {
    sim::set_options(sim::parse_options(text));
  }
  ~with_options() { sim::set_options(before_); }
  with_options(const with_options&) = delete;
  with_options& operator=(const with_options&) = delete;

 private:
  sim::options before_;
};

// No race mode in this scope: for kernels that read what nobody has written, on purpose.
inline with_options without_race_mode() {
  sim::options o = sim::current_options();
  o.race = false;
  return with_options(sim::to_string(o));
}

// What a launch throws; empty when it throws nothing. With threads only: one block.
template <class... P>
std::string report_of(void (*kernel)(P...), const host::launch_config& config,
                      const std::type_identity_t<P>&... arguments) {
  return error_of([&] { run(kernel, config, arguments...); });
}

template <class... P>
std::string report_of(void (*kernel)(P...), int threads,
                      const std::type_identity_t<P>&... arguments) {
  return report_of(kernel, {.grid = {1}, .block = {threads}, .shared_bytes = 4096}, arguments...);
}

}  // namespace kittens::testing
