// The launcher table: which kernel can be launched on which architecture. Plain C++, no CUDA, no
// torch.
//
// A kernel file enters its launchers when its library is loaded; who plans a launch looks them up.
// What configs.py does not select is not in the table, and never an undefined symbol.
//
//   // norm.h: an entry's name, and the type of what its launchers take
//   inline constexpr kittens::host::kernel_entry<norm_forward_params> kLayerNormForward{
//       "layer_norm_forward"};
//
//   // layer_norm.cu
//   namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {   // one file, several targets
//   void launch_forward(const norm_forward_params& p, kittens::host::stream s) { … }
//   KITTENS_LAUNCHER(kLayerNormForward, launch_forward);
//   }
//
//   // norm_plan.cpp
//   static const kittens::host::kernel_handle forward(kLayerNormForward);
//   forward.on(device).launch(params, stream);
//
// An entry has one launcher of each kind for an architecture: a specialised one, of a file named
// `*_sm90.cu`, and a generic one, of any other. The specialised one is launched, unless the device
// asks for generic kernels.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kittens/host/device.h"

namespace kittens::host {

enum class kernel_kind { specialised, generic };

// Of the file that enters a launcher.
constexpr kernel_kind kind_of(std::string_view file) {
  return file.ends_with("_sm90.cu") ? kernel_kind::specialised : kernel_kind::generic;
}

// The name of an entry of the table, whose launchers take `Params`.
template <class Params>
struct kernel_entry {
  using params = Params;
  std::string_view name;
};

using launcher = void (*)(const void* params, stream s);  // throws kittens::host::error

// An entry. Its types are those of its name: kernel_handle and KITTENS_LAUNCHER see to that.
struct op_launchers {
  // By kind and architecture. Null where the op is not built. Atomic, because a library with more
  // launchers may be loaded while ops run.
  using of_kind = std::array<std::atomic<launcher>, kAllArchitectures.size()>;
  std::array<of_kind, 2> by_kind{};
  // Whether a second launcher of a kind was entered for an architecture. There is no telling which
  // one is meant, so that none is found any more.
  std::atomic<bool> entered_twice = false;
  std::atomic<uint64_t> launches = 0;

  launcher find(architecture a, kernel_kind kind) const {
    return by_kind[static_cast<size_t>(kind)][static_cast<size_t>(a)];
  }
  bool is_built_for(architecture a) const {
    return find(a, kernel_kind::specialised) != nullptr || find(a, kernel_kind::generic) != nullptr;
  }
  // Of the build of that kind that runs on a device, null without one: within one major version a
  // binary runs on every later minor one, and sm_90a runs on 9.0 alone.
  KITTENS_EXPORT launcher find(const device& d, kernel_kind kind) const;
  // Of the kind that the device gets.
  KITTENS_EXPORT launcher find(const device& d) const;
  // Whether that is a generic kernel, where there is, on this architecture or another one, a
  // specialised kernel too.
  KITTENS_EXPORT bool takes_generic(const device& d) const;
  // Why there is none, in a few words.
  KITTENS_EXPORT std::string why_not(const device& d) const;
};

// The entry of that name, made at its first use. The reference stays valid; keep it.
KITTENS_EXPORT op_launchers& launchers(std::string_view name);
KITTENS_EXPORT void add_launcher(std::string_view name, architecture a, kernel_kind kind,
                                 launcher f);
// The entries' names, in alphabetical order.
KITTENS_EXPORT std::vector<std::string> all_ops();

// A kernel, on a device that there is a build for.
template <class Params>
class bound_kernel {
 public:
  bound_kernel(op_launchers& entry, launcher run) : entry_(&entry), run_(run) {}

  // On the current CUDA device, which is the one that it was looked up for. Throws error.
  void launch(const Params& params, stream s) const {
    run_(&params, s);
    entry_->launches.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  op_launchers* entry_;
  launcher run_;
};

// An entry of the table. Keep it in a static variable: the look-up is by name.
template <class Params>
class kernel_handle {
 public:
  kernel_handle(const kernel_entry<Params>& entry)  // NOLINT: a table of them is a list of names
      : name_(entry.name), entry_(&launchers(entry.name)) {}

  std::string_view name() const { return name_; }
  // Why no build runs on the device; "" when one does.
  std::string why_not(const device& d) const {
    return entry_->find(d) != nullptr ? "" : entry_->why_not(d);
  }
  // Throws error where why_not says why.
  bound_kernel<Params> on(const device& d) const {
    const launcher run = entry_->find(d);
    if (run == nullptr) throw error(std::string(name_) + ": " + entry_->why_not(d));
    return {*entry_, run};
  }
  // Of which kind that one is.
  kernel_kind kind_on(const device& d) const {
    const bool specialised = entry_->find(d) == entry_->find(d, kernel_kind::specialised);
    return specialised ? kernel_kind::specialised : kernel_kind::generic;
  }

 private:
  std::string_view name_;
  op_launchers* entry_;
};

// Numbers in a device's memory, all 0 when no kernel that uses them runs.
struct counter_array {
  int* first = nullptr;
  int count = 0;
};

// What the CUDA side answers.
struct cuda_queries {
  // Asked once per device index; true: `found` is filled in, false: `why_not` is, with one
  // sentence.
  bool (*find_device)(int index, device& found, std::string& why_not);
  bool (*is_capturing)(stream s);
  counter_array (*find_counters)();
  std::optional<uint64_t> (*stream_id)(stream s);
};

// The CUDA side, when there is one, calls this at load, with what lives as long as the library. No
// CUDA call is made before find_device.
KITTENS_EXPORT void set_cuda_queries(const cuda_queries& queries);
// Whether what is launched on the stream is recorded into a CUDA graph, to run any number of times
// later; false without CUDA.
KITTENS_EXPORT bool is_capturing(stream s);
// Those of the current device: for a kernel that counts, and leaves 0 behind. None without CUDA.
KITTENS_EXPORT counter_array find_counters();
// The number of a stream that is not being captured, which no other of the process ever has. (A
// handle is not enough: cudaStreamPerThread is a stream of each thread, and that of a stream that
// has been destroyed is given away again.) Nothing without CUDA, or where it does not know.
KITTENS_EXPORT std::optional<uint64_t> stream_id(stream s);

namespace detail {

template <class Params, void (*Function)(const Params&, stream)>
void launch_erased(const void* params, stream s) {
  Function(*static_cast<const Params*>(params), s);
}

struct entered_launcher {
  template <class Params>
  entered_launcher(const kernel_entry<Params>& entry, architecture a, kernel_kind kind,
                   launcher f) {
    add_launcher(entry.name, a, kind, f);
  }
};

}  // namespace detail
}  // namespace kittens::host

// KITTENS_TARGET names the architecture that a file is being compiled for (sm80, sm90a, …,
// simulator, simulator_race). The build gives it; without it the file is for whom its compiler
// compiles.
#if !defined(KITTENS_TARGET) && !defined(__CUDACC__)
#define KITTENS_TARGET simulator
#endif

#define KITTENS_JOIN_(a, b) a##b
#define KITTENS_JOIN(a, b) KITTENS_JOIN_(a, b)

// Enters `void function(const Params&, kittens::host::stream)` at load, as the launcher of a
// kernel_entry<Params>.
#define KITTENS_LAUNCHER(entry, ...)                                                           \
  static const ::kittens::host::detail::entered_launcher KITTENS_JOIN(entered_, __COUNTER__) { \
    entry, ::kittens::host::architecture::KITTENS_TARGET, ::kittens::host::kind_of(__FILE__),  \
        &::kittens::host::detail::launch_erased<decltype(entry)::params, __VA_ARGS__>          \
  }
