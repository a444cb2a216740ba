// host/launch.cuh on the device.
#pragma once

#include <cuda_runtime.h>
#include <cxxabi.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "kittens/host/launch_config.h"

namespace kittens::host {
namespace detail {

inline std::string kernel_name(const void* kernel) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess || mangled == nullptr) {
    cudaGetLastError();
    return "kernel";
  }
  int status = 0;
  char* readable = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  const std::string name = readable != nullptr ? readable : mangled;
  std::free(readable);
  return name;
}

[[noreturn]] inline void refuse(const void* kernel, const std::string& why) {
  throw error(kernel_name(kernel) + ": " + why);
}

inline void check(cudaError_t status, const void* kernel, const char* doing) {
  if (status == cudaSuccess) return;
  const std::string why = std::string(doing) + ": " + cudaGetErrorString(status);
  cudaGetLastError();  // ours is reported here; the next launch shall not find it
  refuse(kernel, why);
}

// Whether an error ends the CUDA context, by CUDA's manual: every later call returns it.
constexpr bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorExternalDevice: return true;
    default: return false;
  }
}

inline std::string text_of(cudaError_t status) {
  return std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")";
}

[[noreturn]] inline void refuse_after_earlier_kernel(const void* kernel, cudaError_t status) {
  refuse(kernel,
         "not launched, because a kernel that ran before it, which may be anyone's, failed "
         "and ended this process's CUDA context: " +
             text_of(status) + "; CUDA_LAUNCH_BLOCKING=1 finds out which");
}

// An error that someone else's call left for whoever asks next would else be taken for ours. As
// torch does after its own launches, it is read when it is reported, so that one call raises for it
// and not each that follows.
inline void refuse_earlier_error(const void* kernel) {
  const cudaError_t earlier = cudaPeekAtLastError();
  if (earlier == cudaSuccess) return;
  if (is_sticky(earlier)) refuse_after_earlier_kernel(kernel, earlier);
  cudaGetLastError();
  refuse(kernel,
         "not launched, because an earlier CUDA call, not one of ours, failed and nobody "
         "read its error: " +
             text_of(earlier) + "; with this it is read, and the next call is launched");
}

// What cudaLaunchKernelEx said of our launch.
inline void check_launch(cudaError_t status, const void* kernel, const launch_config& config) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // ours is reported here; the next launch shall not find it
  if (is_sticky(status)) refuse_after_earlier_kernel(kernel, status);
  std::string why = "launch failed: " + text_of(status);
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
    cudaGetLastError();
  } else if (config.block.x > attributes.maxThreadsPerBlock) {
    why += ": it was compiled for at most " + std::to_string(attributes.maxThreadsPerBlock) +
           " threads of a block, got " + std::to_string(config.block.x);
  }
  refuse(kernel, why);
}

// Whether launches may be programmatic at all: not under KITTENS_PDL=0.
// pipeline/programmatic_launch.cuh says when that is needed. Read once.
inline bool programmatic_is_wanted() {
  static const bool wanted = [] {
    const char* const text = std::getenv("KITTENS_PDL");
    return text == nullptr || std::string_view(text) != "0";
  }();
  return wanted;
}

inline constexpr int64_t kDefaultSharedBytes = 48 * 1024;

// What is found out of a kernel once per device, by each thread for itself.
struct kernel_facts {
  int device = 0;
  int static_shared = 0;  // bytes
  bool may_be_programmatic = false;
  int64_t most_shared = kDefaultSharedBytes;  // dynamic, that it was told it may use
};

inline kernel_facts& facts_of(const void* kernel) {
  int device = 0;
  check(cudaGetDevice(&device), kernel, "cannot find the current device");
  thread_local std::unordered_map<uint64_t, kernel_facts> known;
  const uint64_t key = reinterpret_cast<uint64_t>(kernel) ^ static_cast<uint64_t>(device) << 56;
  if (const auto found = known.find(key); found != known.end()) return found->second;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), kernel, "no code for this device");
  // Code that was made for an architecture below sm_90 waits for nothing, whatever runs it.
  constexpr int kFirstThatWaits = 90;
  return known[key] = {.device = device,
                       .static_shared = static_cast<int>(attributes.sharedSizeBytes),
                       .may_be_programmatic =
                           programmatic_is_wanted() && attributes.ptxVersion >= kFirstThatWaits};
}

// A kernel may use more than 48 KB of shared memory only after it is told so. It is told the
// device's maximum, so that the order of its launches does not matter, and two threads that do this
// at once write the same.
inline void allow_large_shared_memory(const void* kernel, kernel_facts& facts, int64_t wanted) {
  if (wanted <= facts.most_shared) return;
  int limit = 0;
  check(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, facts.device),
        kernel, "cannot find the shared memory of the device");
  limit -= facts.static_shared;
  if (wanted > limit) {
    refuse(kernel, "shared_bytes must be 0 to " + std::to_string(limit) + " on this GPU, got " +
                       std::to_string(wanted));
  }
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit), kernel,
        "cannot raise the shared memory limit");
  facts.most_shared = limit;
}

inline dim3 to_dim3(const dim& d) {
  return {static_cast<unsigned>(d.x), static_cast<unsigned>(d.y), static_cast<unsigned>(d.z)};
}

}  // namespace detail

template <class... P>
void launch(void (*kernel)(P...), const launch_config& config, stream s,
            const std::type_identity_t<P>&... arguments) {
  const void* function = reinterpret_cast<const void*>(kernel);
  if (!launchable(config)) detail::refuse(function, why_not_launchable(config));
  detail::refuse_earlier_error(function);
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t launch_config{};
  launch_config.gridDim = detail::to_dim3(config.grid);
  launch_config.blockDim = detail::to_dim3(config.block);
  launch_config.dynamicSmemBytes = static_cast<size_t>(config.shared_bytes);
  launch_config.stream = static_cast<cudaStream_t>(s);
  launch_config.attrs = attributes;
  if (config.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[launch_config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(config.cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  const bool has_large_shared = config.shared_bytes > detail::kDefaultSharedBytes;
  if (has_large_shared || config.programmatic) {
    detail::kernel_facts& facts = detail::facts_of(function);
    detail::allow_large_shared_memory(function, facts, config.shared_bytes);
    if (config.programmatic && facts.may_be_programmatic) {
      cudaLaunchAttribute& programmatic = attributes[launch_config.numAttrs++];
      programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      programmatic.val.programmaticStreamSerializationAllowed = 1;
    }
  }
  detail::check_launch(cudaLaunchKernelEx(&launch_config, kernel, arguments...), function, config);
}

inline int multiprocessors() {
  int index = 0, count = 0;
  cudaError_t status = cudaGetDevice(&index);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, index);
  }
  if (status == cudaSuccess) return count;
  cudaGetLastError();  // ours is reported here; the next launch shall not find it
  throw error(std::string("multiprocessors: no CUDA device: ") + cudaGetErrorString(status));
}

}  // namespace kittens::host
