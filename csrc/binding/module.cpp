// thunderkittens._C: what is not an op. The only file that knows Python, so that the same build
// serves another Python by compiling this file alone. No torch symbol is used here.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "binding/arguments.h"
#include "binding/backend.h"
#include "binding/build_info.h"
#include "binding/describe.h"
#include "binding/vmap_level.h"

namespace py = pybind11;
namespace tk = thunderkittens;

namespace {

py::dict describe(const tk::argument& a) {
  py::dict d;
  d["name"] = a.name;
  d["kind"] = tk::name(a.kind);
  d["optional"] = a.optional;
  d["dtype"] = tk::name(a.dtype);
  d["shape"] = a.shape.text;
  d["minimum"] = a.minimum;
  return d;
}

py::list argument_tables() {
  py::list tables;
  for (const tk::argument_table* table : tk::all_argument_tables()) {
    py::list arguments;
    for (const tk::argument& a : table->arguments) {
      if (a.kind != tk::argument_kind::option) arguments.append(describe(a));
    }
    py::dict d;
    d["op"] = table->op;
    d["variant"] = table->variant;
    d["arguments"] = arguments;
    if (table->relation)
      d["multiple"] = py::make_tuple(table->relation->multiple, table->relation->divisor);
    tables.append(d);
  }
  return tables;
}

// Of each op of torch's: the shapes of its arguments and results, by name. One that is not given
// has none; of packed sequences they are others.
py::dict descriptions() {
  py::dict all;
  for (const tk::registered_op& op : tk::registered_ops()) {
    py::dict arguments;
    py::list results;
    for (const tk::argument& a : op.description.arguments)
      arguments[py::str(a.name)] = a.shape.text;
    for (size_t i = 0; i < op.description.results.size(); ++i) {
      results.append(py::make_tuple(op.description.results[i].name, op.description.results[i].like,
                                    tk::shape_of_result(op.description, i)));
    }
    all[py::str(op.name)] = py::make_tuple(arguments, results);
  }
  return all;
}

py::dict launch_counts() {
  py::dict counts;
  for (const tk::kernel* k : tk::all_kernels()) {
    if (k->launchers != nullptr) counts[py::str(k->entry)] = k->launchers->launches.load();
  }
  return counts;
}

// For each op: its entry in the launcher table and the architectures that it is built for.
py::list kernels() {
  py::list list;
  for (const tk::kernel* k : tk::all_kernels()) {
    py::list built;
    for (const auto a : kittens::host::kAllArchitectures) {
      if (k->launchers != nullptr && k->launchers->find(a) != nullptr)
        built.append(kittens::host::name(a));
    }
    py::dict d;
    d["op"] = k->op;
    d["entry"] = k->entry;
    d["architectures"] = built;
    list.append(d);
  }
  return list;
}

// Why the op has no kernel on that CUDA device; None when it has one.
std::optional<std::string> why_not(std::string_view op, int device) {
  for (const tk::kernel* k : tk::all_kernels()) {
    if (k->op != op) continue;
    std::string reason = tk::why_not(*k, device);
    return reason.empty() ? std::nullopt : std::optional(std::move(reason));
  }
  throw py::key_error(std::string(op));
}

// Calls `function()` while its ops only decide; returns (op, backend, reason, notes), or None when
// no op decided anything.
py::object explain(const py::function& function) {
  struct scope {
    explicit scope(tk::explanation* record) { tk::begin_explaining(record); }
    ~scope() { tk::end_explaining(); }
  };
  tk::explanation record;
  {
    const scope active(&record);
    function();
  }
  if (record.op.empty()) return py::none();
  return py::make_tuple(record.op, record.backend, record.reason, record.notes);
}

// A Python warning, attributed to the caller of the public function. Ops run without the GIL.
void warn(const char* sentence) {
  constexpr int kCaller = 3;  // above torch.ops and the public function
  const py::gil_scoped_acquire gil;
  if (PyErr_WarnEx(PyExc_UserWarning, sentence, kCaller) != 0) throw py::error_already_set();
}

// Of the transform of torch.func that is being applied.
int64_t current_level() {
  const py::gil_scoped_acquire gil;
  return py::module_::import("torch._C").attr("_functorch").attr("current_level")().cast<int64_t>();
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Build information, argument tables, launch counters and backend controls.";
  py::enum_<tk::backend>(m, "Backend")
      .value("auto", tk::backend::automatic)
      .value("torch", tk::backend::torch)
      .value("simulator", tk::backend::simulator)
      .value("simulator_race", tk::backend::simulator_race);
  tk::set_warning_handler(&warn);
  tk::set_level_reader(&current_level);
  m.def("build_info", &tk::build_info_json, "What the library was built from, as JSON.");
  m.def("backend", &tk::current_backend, "This thread's backend.");
  m.def("set_backend", &tk::set_backend, "Sets this thread's backend.");
  m.def("explain", &explain);
  m.def("argument_tables", &argument_tables);
  m.def("descriptions", &descriptions);
  m.def("launch_counts", &launch_counts, "Launches so far, by entry of the launcher table.");
  m.def("kernels", &kernels);
  m.def("why_not", &why_not);
  m.def("forget_warnings", &tk::forget_warnings, "Lets every fallback warn once more.");
}
