// Unit tests of device code, one source for both worlds: nvcc makes a program that runs on a GPU,
// g++ one that runs in the simulator (KITTENS_SIM chooses its policy). Include it once per program.
//
//   __global__ void twice(const float* x, float* y) { … }
//
//   TEST(doubles_each_element) {
//     buffer<float> x(std::vector<float>{1, 2, 3}), y(3);       // y holds NaNs until it is written
//     run(twice, {.grid = {1}, .block = {3}}, x.data(), y.data());
//     CHECK_EQUAL(y.get()[2], 6.0f);
//   }
//
// The program: [--list] [--stop] [--filter TEXT]; prints `N passed, N failed`, and exits with 0 if
// all passed. --stop: at the first that fails.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "kittens/host/launch.cuh"

#if KITTENS_SIMULATED
#include "sim/guards.hpp"
#else
#include <cuda_runtime.h>
#endif

namespace kittens::testing {

struct test_case {
  const char* name;
  void (*body)();
};

inline std::vector<test_case>& test_cases() {
  static std::vector<test_case> cases;
  return cases;
}

struct registration {
  registration(const char* name, void (*body)()) { test_cases().push_back({name, body}); }
};

inline int failed_checks = 0;  // of the running test

inline void fail(const char* file, int line, const std::string& what) {
  constexpr int kMostPrinted = 10;
  if (++failed_checks <= kMostPrinted) std::printf("  %s:%d: %s\n", file, line, what.c_str());
}

template <class T>
std::string to_text(const T& value) {
  std::ostringstream text;
  text.precision(9);
  if constexpr (std::is_same_v<T, uint8_t>) {
    text << int{value};
  } else {
    text << value;
  }
  return text.str();
}

// ---- memory of the device

inline void check_cuda(int status, const char* doing) {
#if KITTENS_SIMULATED
  (void)status, (void)doing;
#else
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(doing) + ": " +
                             cudaGetErrorString(static_cast<cudaError_t>(status)));
  }
#endif
}

// Raw memory of the device, aligned to 256 bytes.
class device_memory {
 public:
  static constexpr size_t kAlignment = 256;

  explicit device_memory(size_t bytes) : bytes_(bytes) {
#if KITTENS_SIMULATED
    p_ = static_cast<uint8_t*>(::operator new(bytes, std::align_val_t{kAlignment}));
#else
    check_cuda(cudaMalloc(&p_, bytes), "cudaMalloc");
#endif
  }
  ~device_memory() {
#if KITTENS_SIMULATED
    ::operator delete(p_, std::align_val_t{kAlignment});
#else
    cudaFree(p_);
#endif
  }
  device_memory(const device_memory&) = delete;
  device_memory& operator=(const device_memory&) = delete;

  void write(const std::vector<uint8_t>& from) {
#if KITTENS_SIMULATED
    std::memcpy(p_, from.data(), bytes_);
#else
    check_cuda(cudaMemcpy(p_, from.data(), bytes_, cudaMemcpyHostToDevice), "write");
#endif
  }
  std::vector<uint8_t> read() const {
    std::vector<uint8_t> to(bytes_);
#if KITTENS_SIMULATED
    std::memcpy(to.data(), p_, bytes_);
#else
    check_cuda(cudaMemcpy(to.data(), p_, bytes_, cudaMemcpyDeviceToHost), "read");
#endif
    return to;
  }
  uint8_t* data() const { return p_; }

 private:
  uint8_t* p_ = nullptr;
  size_t bytes_;
};

// An array on the device, between two guard bands. In the simulator, an access to one through the
// seam is reported at once; in both worlds, get() finds what was written there.
template <class T>
class buffer {
 public:
  // NaNs, as float, bf16 and half.
  explicit buffer(size_t count) : buffer(count, poison(count * sizeof(T))) {}
  explicit buffer(const std::vector<T>& values) : buffer(values.size(), bytes_of(values)) {}
#if KITTENS_SIMULATED
  ~buffer() { sim::release_guards(data()); }
#endif
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;

  T* data() const { return reinterpret_cast<T*>(memory_.data() + kGuardBytes); }
  size_t size() const { return count_; }

  // The values, when all launched kernels have ended.
  std::vector<T> get() const {
    const std::vector<uint8_t> bytes = memory_.read();
    for (size_t i = 0; i < kGuardBytes; ++i) {
      if (bytes[i] != kGuard || bytes[bytes.size() - 1 - i] != kGuard) {
        throw std::runtime_error("a kernel wrote outside of a buffer");
      }
    }
    std::vector<T> values(count_);
    std::memcpy(values.data(), bytes.data() + kGuardBytes, count_ * sizeof(T));
    return values;
  }

 private:
  static constexpr size_t kGuardBytes = device_memory::kAlignment;
  static constexpr uint8_t kGuard = 0xc5;

  static std::vector<uint8_t> poison(size_t bytes) {
    std::vector<uint8_t> content(bytes);
    for (size_t i = 0; i < bytes; ++i) content[i] = i % 2 == 0 ? 0xad : 0x7f;
    return content;
  }
  static std::vector<uint8_t> bytes_of(const std::vector<T>& values) {
    const auto* first = reinterpret_cast<const uint8_t*>(values.data());
    return {first, first + values.size() * sizeof(T)};
  }

  buffer(size_t count, const std::vector<uint8_t>& content)
      : count_(count), memory_(content.size() + 2 * kGuardBytes) {
    std::vector<uint8_t> bytes(content.size() + 2 * kGuardBytes, kGuard);
    std::copy(content.begin(), content.end(), bytes.begin() + kGuardBytes);
    memory_.write(bytes);
#if KITTENS_SIMULATED
    sim::guard(data(), {static_cast<int64_t>(content.size()), kGuardBytes});
#endif
  }

  size_t count_;
  device_memory memory_;
};

// Launches, and waits until the kernel has ended.
template <class... P>
void run(void (*kernel)(P...), const host::launch_config& config,
         const std::type_identity_t<P>&... arguments) {
  host::launch(kernel, config, nullptr, arguments...);
#if !KITTENS_SIMULATED
  check_cuda(cudaDeviceSynchronize(), "the kernel failed");
#endif
}

// What `body` throws, as text; empty when it throws nothing.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

// ---- the program

inline bool run_test(const test_case& test) {
  failed_checks = 0;
  const std::string thrown = error_of(test.body);
  if (!thrown.empty()) fail(test.name, 0, "throws " + thrown);
  std::printf("%s %s\n", failed_checks == 0 ? "ok    " : "FAILED", test.name);
  return failed_checks == 0;
}

inline int run_program(int argc, char** argv) {
  bool only_list = false, stop = false;
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--list") {
      only_list = true;
    } else if (argument == "--stop") {
      stop = true;
    } else if (argument == "--filter" && i + 1 < argc) {
      filter = argv[++i];
    } else {
      std::printf("usage: %s [--list] [--stop] [--filter TEXT]\n", argv[0]);
      return 2;
    }
  }
  int passed = 0, failed = 0;
  for (const test_case& test : test_cases()) {
    if (std::string(test.name).find(filter) == std::string::npos) continue;
    if (only_list) {
      std::printf("%s\n", test.name);
    } else {
      ++(run_test(test) ? passed : failed);
      if (stop && failed > 0) break;
    }
  }
  if (only_list) return 0;
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace kittens::testing

#define TEST(name)                                                                    \
  static void test_##name();                                                          \
  static const ::kittens::testing::registration register_##name(#name, &test_##name); \
  static void test_##name()

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) ::kittens::testing::fail(__FILE__, __LINE__, #condition); \
  } while (false)

// Equal; a NaN equals nothing.
#define CHECK_EQUAL(got, want)                                                              \
  do {                                                                                      \
    auto got_ = (got);                                                                      \
    decltype(got_) want_ = static_cast<decltype(got_)>(want);                               \
    if (!(got_ == want_)) {                                                                 \
      ::kittens::testing::fail(__FILE__, __LINE__,                                          \
                               #got " is " + ::kittens::testing::to_text(got_) + ", not " + \
                                   ::kittens::testing::to_text(want_));                     \
    }                                                                                       \
  } while (false)

// At most `tolerance` apart; a NaN is close to nothing.
#define CHECK_CLOSE(got, want, tolerance)                                        \
  do {                                                                           \
    const double got_ = (got), want_ = (want);                                   \
    if (!(std::fabs(got_ - want_) <= (tolerance))) {                             \
      ::kittens::testing::fail(__FILE__, __LINE__,                               \
                               #got " is " + ::kittens::testing::to_text(got_) + \
                                   ", not within " #tolerance " of " +           \
                                   ::kittens::testing::to_text(want_));          \
    }                                                                            \
  } while (false)

// The text contains the part.
#define CHECK_CONTAINS(text, part)                                                         \
  do {                                                                                     \
    const std::string text_ = (text), part_ = (part);                                      \
    if (text_.find(part_) == std::string::npos) {                                          \
      ::kittens::testing::fail(__FILE__, __LINE__, "`" + part_ + "` is not in: " + text_); \
    }                                                                                      \
  } while (false)

int main(int argc, char** argv) { return kittens::testing::run_program(argc, argv); }
