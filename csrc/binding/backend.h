// Which backend serves a call, and why. The choice is made here and nowhere else; `explain` asks
// the same function, so what it says is what happens.
//
// - auto: CUDA tensors on a GPU that a kernel was built for go to that kernel, the rest to ATen.
//
// - torch: ATen, always.
//
// - simulator: the kernels compiled for the CPU, for CPU tensors only; simulator_race: the same,
//   built for the simulator's race mode.
//
// - …_generic: the same, and of an op that has two kernels the generic one, which is for every
//   architecture, even where there is a specialised one. An op that has none is ATen's.
//
// ATen serving a CPU tensor under auto is the CPU path. ATen serving a call that a kernel was
// wanted for is a fallback: it warns once per reason, or raises under THUNDERKITTENS_STRICT=1.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <string_view>
#include <vector>

#include "binding/export.h"
#include "kittens/host/launchers.h"

namespace thunderkittens {

enum class backend : int8_t {
  automatic,
  torch,
  simulator,
  simulator_race,
  automatic_generic,
  simulator_generic,
  simulator_race_generic,
};

// The calling thread's choice. Autograd runs a backward on another thread, so a node saves the
// backend of its forward and restores it with `backend_scope`.
KITTENS_EXPORT backend current_backend();
KITTENS_EXPORT void set_backend(backend choice);

class backend_scope {
 public:
  explicit backend_scope(backend choice) : previous_(current_backend()) { set_backend(choice); }
  ~backend_scope() { set_backend(previous_); }
  backend_scope(const backend_scope&) = delete;
  backend_scope& operator=(const backend_scope&) = delete;

 private:
  backend previous_;
};

// An op's kernel: one entry of the launcher table, as the op sees it. Keep it in a static variable:
// the look-up is by name.
class kernel {
 public:
  // `op`: the public function, for messages.
  template <class Params>
  kernel(std::string_view op, const kittens::host::kernel_entry<Params>& entry)
      : kernel(op, entry.name) {}

  std::string_view op, entry;
  kittens::host::op_launchers* launchers;

 private:
  kernel(std::string_view op, std::string_view entry);
};

KITTENS_EXPORT std::vector<const kernel*> all_kernels();

// The outcome.
struct decision {
  const kernel* chosen = nullptr;
  const kittens::host::device* on = nullptr;  // where the kernel runs; null: ATen computes the call
  bool explained = false;          // the caller only asks: return without computing anything
  c10::Device device = c10::kCPU;  // the tensors'
};

// `unsupported`: why the op's kernel cannot take these arguments, "" when it can.
// Warns or raises when this is a fallback; raises for a CUDA tensor under the simulator.
decision decide(const kernel& wanted, c10::Device device, std::string_view unsupported);
// Whether the kernel is built for tensors on that device: true as well where no kernel is wanted
// for them. (What is false here is a fallback to `decide`.)
bool is_built(const kernel& wanted, c10::Device device);
// The outcome where torch's own op is the one to take, whatever the backend: no fallback, so nobody
// is warned.
decision leave_to_torch(const kernel& wanted, std::string_view reason);

// Who is told of a fallback; torch's own logging until it is set. The Python module makes a Python
// warning of it, which torch does not for functions of torch.ops.
using warning_handler = void (*)(const char* sentence);
KITTENS_EXPORT void set_warning_handler(warning_handler handler);

// ---- explain ------------------------------------------------------------------------------------

struct explanation {
  std::string op, backend, reason;
  std::vector<std::string> notes;  // such as an argument that is copied first
};

// While a thread has one of these, its ops check and decide, write here, and return empty tensors.
KITTENS_EXPORT void begin_explaining(explanation* record);
KITTENS_EXPORT void end_explaining();
explanation* explaining();  // null: not explaining

// Notes what will compute the gradients of a call on that device: the kernel, unless `unsupported`.
void note_backward(const kernel& wanted, const kittens::host::device& on, std::string unsupported);

// ---- Tests and the command line -----------------------------------------------------------------

KITTENS_EXPORT void forget_warnings();
// Why no build of the kernel runs on that CUDA device; "" when one does. And whether that is the
// generic one of two.
KITTENS_EXPORT std::string why_not(const kernel& wanted, int cuda_device);
KITTENS_EXPORT bool takes_generic(const kernel& wanted, int cuda_device);

}  // namespace thunderkittens
