// Memory of a device: CUDA's, or the CPU's where the simulator runs the kernels.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "thunderkittens/kernels/common.h"

#ifdef WITH_CUDA
#include <cuda_runtime.h>
#endif

// `count` elements, freed with the buffer. The default stream's order holds: nothing here needs to
// wait for a launch.
template <class T>
class buffer {
 public:
  buffer(const thunderkittens::device& device, size_t count)
      : simulated_(device.is_simulated()), count_(count) {
    if (simulated_) {
      data_ = static_cast<T*>(::operator new(bytes(), std::align_val_t{256}));
      std::memset(static_cast<void*>(data_), 0, bytes());
      return;
    }
#ifdef WITH_CUDA
    check(cudaMalloc(&data_, bytes()));
    check(cudaMemset(data_, 0, bytes()));
#endif
  }
  buffer(const thunderkittens::device& device, const std::vector<T>& values)
      : buffer(device, values.size()) {
    if (simulated_) std::memcpy(static_cast<void*>(data_), values.data(), bytes());
#ifdef WITH_CUDA
    if (!simulated_) check(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
#endif
  }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  ~buffer() {
    if (simulated_) ::operator delete(data_, std::align_val_t{256});
#ifdef WITH_CUDA
    if (!simulated_) cudaFree(data_);
#endif
  }

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    if (simulated_) std::memcpy(static_cast<void*>(result.data()), data_, bytes());
#ifdef WITH_CUDA
    if (!simulated_) check(cudaMemcpy(result.data(), data_, bytes(), cudaMemcpyDeviceToHost));
#endif
    return result;
  }

 private:
  size_t bytes() const { return count_ * sizeof(T); }
#ifdef WITH_CUDA
  static void check(cudaError_t status) {
    if (status != cudaSuccess) throw thunderkittens::error(cudaGetErrorString(status));
  }
#endif

  bool simulated_;
  size_t count_;
  T* data_ = nullptr;
};
