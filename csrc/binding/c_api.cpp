// What Python finds in this library beside its ops: C functions, for ctypes (thunderkittens/_C.py).
// So nothing here is compiled for one Python, and one wheel serves all of them. Tables are JSON. A
// text lives until the same thread asks the same function again.
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "binding/arguments.h"
#include "binding/backend.h"
#include "binding/build_info.h"
#include "binding/describe.h"
#include "binding/export.h"
#include "binding/vmap.h"

namespace tk = thunderkittens;

namespace {

std::string as_json(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    json += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return json + '"';
}

std::string as_json(bool value) { return value ? "true" : "false"; }

// A list or, between braces, an object: `item` makes the JSON of each element that it keeps.
template <class Range, class Item>
std::string joined(const char* brackets, const Range& range, Item item) {
  std::string json(1, brackets[0]);
  for (const auto& element : range) {
    const std::string text = item(element);
    if (text.empty()) continue;
    if (json.size() > 1) json += ", ";
    json += text;
  }
  return json + brackets[1];
}

std::string describe(const tk::argument& a) {
  if (a.kind == tk::argument_kind::option) return "";
  char limits[80];
  std::snprintf(limits, sizeof limits, "\"minimum\": %.17g, \"maximum\": %.17g", a.minimum,
                a.maximum);
  return "{\"name\": " + as_json(a.name) + ", \"kind\": " + as_json(tk::name(a.kind)) +
         ", \"optional\": " + as_json(a.optional) + ", \"dtype\": " + as_json(tk::name(a.dtype)) +
         ", \"shape\": " + as_json(a.shape.text) + ", " + limits + ", \"words\": " +
         joined("[]", a.words,
                [](std::string_view word) { return word.empty() ? "" : as_json(word); }) +
         "}";
}

std::string describe(const tk::argument_table* table) {
  std::string json = "{\"op\": " + as_json(table->op) + ", \"variant\": " + as_json(table->variant);
  json += ", \"arguments\": " +
          joined("[]", table->arguments, [](const tk::argument& a) { return describe(a); });
  if (table->relation) {
    json += ", \"multiple\": [" + as_json(table->relation->multiple) + ", " +
            as_json(table->relation->divisor) + "]";
  }
  return json + "}";
}

std::string describe(const tk::registered_op& op) {
  const auto& [name, d] = op;
  const std::string arguments = joined("{}", d.arguments, [](const tk::argument& a) {
    return as_json(a.name) + ": " + as_json(a.shape.text);
  });
  size_t i = 0;
  const std::string results = joined("[]", d.results, [&](const tk::result& r) {
    const std::string_view shape = tk::shape_of_result(d, i++);
    return "[" + as_json(r.name) + ", " + as_json(r.like) + ", " + as_json(shape) + "]";
  });
  return as_json(name) + ": [" + arguments + ", " + results + "]";
}

std::string architectures(const tk::kernel& k) {
  return joined("[]", kittens::host::kAllArchitectures, [&](kittens::host::architecture a) {
    const bool built = k.launchers != nullptr && k.launchers->is_built_for(a);
    return built ? as_json(kittens::host::name(a)) : "";
  });
}

// Calls the op that _C.py has made of Python's `warnings.warn`: torch knows how to go from C++,
// with or without Python's lock, into Python, and how to bring back what it raises. Below all
// modes, which are not to see it.
void warn_in_python(const char* sentence) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("thunderkittens_python::warn", "");
  const c10::impl::ExcludeDispatchKeyGuard nothing_above(
      c10::DispatchKeySet(c10::DispatchKeySet::FULL));
  op.typed<void(c10::string_view)>().call(sentence);
}

thread_local tk::explanation the_explanation;

}  // namespace

extern "C" {

KITTENS_EXPORT const char* thunderkittens_build_info() { return tk::build_info_json(); }

KITTENS_EXPORT const char* thunderkittens_why_not_kernels() { return tk::why_not_kernels(); }

KITTENS_EXPORT int thunderkittens_backend() { return static_cast<int>(tk::current_backend()); }

KITTENS_EXPORT void thunderkittens_set_backend(int choice) {
  tk::set_backend(static_cast<tk::backend>(choice));
}

// From here to `end_explaining` the thread's ops only decide.
KITTENS_EXPORT void thunderkittens_begin_explaining() {
  the_explanation = {};
  tk::begin_explaining(&the_explanation);
}

// [op, backend, reason, [note …]]; null when no op decided anything.
KITTENS_EXPORT const char* thunderkittens_end_explaining() {
  static thread_local std::string json;
  tk::end_explaining();
  const tk::explanation& e = the_explanation;
  json = "null";
  if (!e.op.empty()) {
    json = "[" + as_json(e.op) + ", " + as_json(e.backend) + ", " + as_json(e.reason) + ", " +
           joined("[]", e.notes, [](const std::string& note) { return as_json(note); }) + "]";
  }
  return json.c_str();
}

KITTENS_EXPORT const char* thunderkittens_argument_tables() {
  static thread_local std::string json;
  json = joined("[]", tk::all_argument_tables(),
                [](const tk::argument_table* table) { return describe(table); });
  return json.c_str();
}

// Of all that is registered with torch: {name: [{argument: shape}, [[result, like, shape] …]]}.
KITTENS_EXPORT const char* thunderkittens_descriptions() {
  static thread_local std::string json;
  json =
      joined("{}", tk::registered_ops(), [](const tk::registered_op& op) { return describe(op); });
  return json.c_str();
}

KITTENS_EXPORT const char* thunderkittens_launch_counts() {
  static thread_local std::string json;
  json = joined("{}", tk::all_kernels(), [](const tk::kernel* k) {
    if (k->launchers == nullptr) return std::string();
    return as_json(k->entry) + ": " + std::to_string(k->launchers->launches.load());
  });
  return json.c_str();
}

// For each op: its entry in the launcher table and the architectures that it is built for.
KITTENS_EXPORT const char* thunderkittens_kernels() {
  static thread_local std::string json;
  json = joined("[]", tk::all_kernels(), [](const tk::kernel* k) {
    return "{\"op\": " + as_json(k->op) + ", \"entry\": " + as_json(k->entry) +
           ", \"architectures\": " + architectures(*k) + "}";
  });
  return json.c_str();
}

// Why the op has no kernel on that CUDA device; "" when it has one, null when there is no such op.
KITTENS_EXPORT const char* thunderkittens_why_not(const char* op, int device) {
  static thread_local std::string reason;
  for (const tk::kernel* k : tk::all_kernels()) {
    if (k->op != op) continue;
    reason = tk::why_not(*k, device);
    return reason.c_str();
  }
  return nullptr;
}

// Whether the kernel of the op on that CUDA device is the generic one of two.
KITTENS_EXPORT int thunderkittens_takes_generic(const char* op, int device) {
  for (const tk::kernel* k : tk::all_kernels()) {
    if (k->op == op) return tk::takes_generic(*k, device);
  }
  return 0;
}

KITTENS_EXPORT void thunderkittens_forget_warnings() { tk::forget_warnings(); }

KITTENS_EXPORT void thunderkittens_set_level_reader(tk::level_reader reader) {
  tk::set_level_reader(reader);
}

KITTENS_EXPORT void thunderkittens_warn_in_python() { tk::set_warning_handler(&warn_in_python); }

}  // extern "C"
