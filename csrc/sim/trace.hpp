// Call stacks, and the source lines that they stand for.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sim/api.hpp"

namespace kittens::sim {

// The return addresses of a call stack, innermost first; null after the last.
struct trace {
  static constexpr int kDepth = 16;
  std::array<const void*, kDepth> pc{};

  static trace capture();
};

struct source_line {
  std::string function, file;
  int line = 0;
};

// The lines of code addresses, with those that were inlined, innermost first. Asks addr2line, of
// the toolchain that built us; what it does not know is left out.
class symbols {
 public:
  void add(const void* pc);
  void add(const trace& t);
  void resolve();  // all that were added, together
  const std::vector<source_line>& find(const void* pc) const;

 private:
  void resolve(const std::string& path, std::span<const void* const> addresses);  // of one file

  std::map<const void*, std::vector<source_line>> lines_;
};

// Where in the kernel's own source a thread is: `layer_norm.cuh:55`, with the line of the library's
// header that it came through, if it did: `layer_norm.cuh:55 (through vector_reduce.cuh:14)`.
std::string kernel_line(const symbols& known, const trace& where, call_site site);

// The same for a single return address, with the line of the library nearest to the arch function.
std::string kernel_line(const symbols& known, const void* pc);

// The name of a kernel, from its address.
std::string kernel_name(const void* kernel);
// `attention_forward` of `void ns::attention_forward<ns::config<64>>(ns::params)`.
std::string short_name(const std::string& kernel);

}  // namespace kittens::sim
