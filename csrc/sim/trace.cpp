#include "sim/trace.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <unwind.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace kittens::sim {
namespace {

std::string base_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string to_text(std::string_view file, int line) {
  return base_name(file) + ":" + std::to_string(line);
}

// Whether a file belongs to the tile library or the simulator, not to a kernel.
bool is_library(std::string_view file) {
  return file.find("include/kittens/") != std::string_view::npos ||
         file.find("csrc/sim/") != std::string_view::npos ||
         file.find("/include/c++/") != std::string_view::npos;
}

// The loaded file that holds an address, and the address as that file's debug information has it.
struct place {
  std::string path;
  uintptr_t offset = 0;
};

place find_place(const void* pc) {
  Dl_info info{};
  if (pc == nullptr || dladdr(pc, &info) == 0) return {};
  const bool is_relocated = static_cast<const Elf64_Ehdr*>(info.dli_fbase)->e_type == ET_DYN;
  const auto base = is_relocated ? reinterpret_cast<uintptr_t>(info.dli_fbase) : 0;
  return {info.dli_fname, reinterpret_cast<uintptr_t>(pc) - base};
}

std::string quoted(const std::string& path) {
  std::string result = "'";
  for (const char c : path) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::vector<std::string> output_lines(const std::string& command) {
  std::vector<std::string> lines;
  std::FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return lines;
  std::string line;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    if (c != '\n') {
      line += static_cast<char>(c);
    } else {
      lines.push_back(std::move(line));
      line.clear();
    }
  }
  pclose(pipe);
  return lines;
}

// A function's name without its parameters and without unnamed namespaces: addr2line has these
// where it takes the name from the symbol table.
std::string plain_name(std::string name) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(kUnnamed)) != std::string::npos;) name.erase(at, kUnnamed.size());
  if (!name.ends_with(')')) return name;
  size_t at = name.size();
  int depth = 0;
  do {
    --at;
    depth += name[at] == ')' ? 1 : name[at] == '(' ? -1 : 0;
  } while (at > 0 && depth > 0);
  return name.substr(0, at);
}

// One of addr2line's answers: a line with the function, then one with `file:line (discriminator
// 3)`.
source_line parse_answer(const std::string& function, const std::string& location) {
  const size_t colon = location.rfind(':');
  if (colon == std::string::npos) return {};
  const int line = std::atoi(location.c_str() + colon + 1);
  return {plain_name(function), location.substr(0, colon), line};
}

}  // namespace

trace trace::capture() {
  struct state {
    trace result;
    int depth = 0;
  } s;
  const auto step = [](_Unwind_Context* context, void* argument) {
    auto& to = *static_cast<state*>(argument);
    const auto pc = _Unwind_GetIP(context);
    if (pc == 0 || to.depth == kDepth) return _URC_END_OF_STACK;
    // A return address is that of the next instruction, which may be on another line.
    to.result.pc[to.depth++] = reinterpret_cast<const void*>(pc - 1);
    return _URC_NO_REASON;
  };
  _Unwind_Backtrace(step, &s);
  return s.result;
}

void symbols::add(const void* pc) {
  if (pc != nullptr) lines_.try_emplace(pc);
}

void symbols::add(const trace& t) {
  for (const void* pc : t.pc) add(pc);
}

void symbols::resolve() {
  std::map<std::string, std::vector<const void*>> by_file;
  for (const auto& [pc, lines] : lines_) {
    if (const place p = find_place(pc); !p.path.empty()) by_file[p.path].push_back(pc);
  }
  for (const auto& [path, addresses] : by_file) {
    constexpr size_t kMost = 4096;  // that a command line holds for sure
    for (size_t i = 0; i < addresses.size(); i += kMost) {
      resolve(path, {addresses.data() + i, std::min(kMost, addresses.size() - i)});
    }
  }
}

void symbols::resolve(const std::string& path, std::span<const void* const> addresses) {
  std::string command = "addr2line -a -i -f -C -e " + quoted(path);
  for (const void* pc : addresses) {
    char text[32];
    std::snprintf(text, sizeof text, " 0x%zx", static_cast<size_t>(find_place(pc).offset));
    command += text;
  }
  const std::vector<std::string> answers = output_lines(command + " 2>/dev/null");
  size_t next = 0;  // among the addresses: each answer starts with its own
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].starts_with("0x")) {
      ++next;
    } else if (i + 1 < answers.size() && next >= 1 && next <= addresses.size()) {
      const source_line line = parse_answer(answers[i], answers[i + 1]);
      if (line.line > 0) lines_[addresses[next - 1]].push_back(line);
      ++i;
    }
  }
}

const std::vector<source_line>& symbols::find(const void* pc) const {
  static const std::vector<source_line> kNone;
  const auto found = lines_.find(pc);
  return found != lines_.end() ? found->second : kNone;
}

std::string kernel_line(const symbols& known, const trace& where, call_site site) {
  const std::string called = to_text(site.file, site.line);
  if (!is_library(site.file)) return called;
  for (const void* pc : where.pc) {
    for (const source_line& l : known.find(pc)) {
      if (!is_library(l.file)) return to_text(l.file, l.line) + " (through " + called + ")";
    }
  }
  return called;
}

std::string kernel_line(const symbols& known, const void* pc) {
  std::string through;
  for (const source_line& l : known.find(pc)) {
    const std::string line = to_text(l.file, l.line);
    if (!is_library(l.file)) return through.empty() ? line : line + " (through " + through + ")";
    const bool is_ours = l.file.find("include/kittens/") != std::string::npos;
    const bool is_arch = l.file.find("include/kittens/arch/") != std::string::npos;
    if (through.empty() && is_ours && !is_arch) through = line;
  }
  return through.empty() ? "an unknown line" : through;
}

std::string kernel_name(const void* kernel) {
  symbols known;
  known.add(kernel);
  known.resolve();
  const std::vector<source_line>& lines = known.find(kernel);
  if (!lines.empty()) return lines.back().function;
  char text[32];
  std::snprintf(text, sizeof text, "kernel at %p", kernel);
  return text;
}

std::string short_name(const std::string& kernel) {
  const std::string name = kernel.substr(0, kernel.find_first_of("<("));
  return name.substr(name.find_last_of(": ") + 1);
}

}  // namespace kittens::sim
