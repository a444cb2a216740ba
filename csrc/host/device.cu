// Asks the CUDA runtime about a device. Built with the kernels, when there is an nvcc.
#include <cuda_runtime.h>

#include "kittens/host/launchers.h"

namespace kittens::host {
namespace {

bool query_device(int index, device& found, std::string& why_not) {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && (index < 0 || index >= count)) {
    why_not = "there is no CUDA device " + std::to_string(index) + ", only " +
              std::to_string(count) + " of them";
    return false;
  }
  const auto get = [&](int& value, cudaDeviceAttr attribute) {
    if (status == cudaSuccess) status = cudaDeviceGetAttribute(&value, attribute, index);
  };
  get(found.major, cudaDevAttrComputeCapabilityMajor);
  get(found.minor, cudaDevAttrComputeCapabilityMinor);
  get(found.multiprocessors, cudaDevAttrMultiProcessorCount);
  if (status == cudaSuccess) return true;
  int driver = 0;
  if (status == cudaErrorInsufficientDriver &&
      (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)) {
    cudaGetLastError();
    why_not = "no NVIDIA driver";
    return false;
  }
  cudaGetLastError();  // told in why_not; the next launch shall not find it
  why_not = std::string("CUDA finds no device: ") + cudaGetErrorString(status);
  return false;
}

// A capture that has failed is one too: what it recorded may not be touched by others either.
bool is_stream_capturing(stream s) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(s), &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  cudaGetLastError();  // the launch that follows meets the error again, and reports it
  return true;
}

constexpr int kCounters = 256 * 1024;
__device__ int counters[kCounters];

counter_array device_counters() {
  void* first = nullptr;
  if (cudaGetSymbolAddress(&first, counters) == cudaSuccess) {
    return {static_cast<int*>(first), kCounters};
  }
  cudaGetLastError();  // the launch that follows meets the error again, and reports it
  return {};
}

std::optional<uint64_t> id_of_stream(stream s) {
  unsigned long long id = 0;
  if (cudaStreamGetId(static_cast<cudaStream_t>(s), &id) == cudaSuccess) return id;
  cudaGetLastError();  // the launch that follows meets the error again, and reports it
  return std::nullopt;
}

constexpr cuda_queries kQueries{&query_device, &is_stream_capturing, &device_counters,
                                &id_of_stream};
[[maybe_unused]] const bool kRegistered = (set_cuda_queries(kQueries), true);

}  // namespace
}  // namespace kittens::host
