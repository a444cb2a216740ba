// host/cuda/launch.cuh and prefer_l1.cuh with a CUDA runtime that the test plays: what they
// ask of it, and what they say where the runtime has an error. A program of its own, compiled by
// the C++ compiler.
#include "kittens/host/cuda/launch.cuh"

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "kittens/host/cuda/prefer_l1.cuh"

namespace {

// ---- The runtime -----------------------------------------------------------------------------

cudaError_t pending = cudaSuccess;    // read by cudaGetLastError
cudaError_t of_launch = cudaSuccess;  // what the next launch meets
int launched = 0, programmatic = 0;   // launches that were taken, and the programmatic ones
int block_shared = 227 * 1024;        // bytes, of the device
int allowed = 0;                      // bytes of shared memory, of the kernel
int current_device = 0;
std::vector<int> carveouts;  // percent of shared memory, as kernels preferred
cudaError_t of_attribute = cudaSuccess;
int failed = 0;

void check(bool ok, int line, const char* what) {
  if (ok) return;
  ++failed;
  std::printf("%s:%d: %s\n", __FILE__, line, what);
}
#define CHECK(condition) check(condition, __LINE__, #condition)

void kernel(int) {}

std::string launch(const kittens::host::launch_config& config = {.grid = {1}, .block = {32}}) {
  try {
    kittens::host::launch(kernel, config, nullptr, 1);
    return "";
  } catch (const kittens::host::error& error) {
    return error.what();
  }
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

extern "C" {
cudaError_t cudaPeekAtLastError() { return pending; }
cudaError_t cudaGetLastError() {
  const cudaError_t last = pending;
  // An error that has ended the context stays.
  if (!kittens::host::detail::is_sticky(pending)) pending = cudaSuccess;
  return last;
}
const char* cudaGetErrorName(cudaError_t status) {
  return status == cudaErrorInvalidDevice ? "cudaErrorInvalidDevice" : "cudaErrorOther";
}
const char* cudaGetErrorString(cudaError_t) { return "what CUDA says of it"; }
cudaError_t cudaFuncGetName(const char** name, const void*) {
  *name = "_Z6kerneli";
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = block_shared;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->ptxVersion = 90;
  attributes->maxThreadsPerBlock = 192;
  attributes->sharedSizeBytes = 1024;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute what, int value) {
  if (of_attribute != cudaSuccess) return pending = of_attribute;
  if (what == cudaFuncAttributePreferredSharedMemoryCarveout) {
    carveouts.push_back(value);
  } else {
    allowed = value;
  }
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  if (of_launch != cudaSuccess) return pending = of_launch;
  ++launched;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    programmatic += config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization;
  }
  return cudaSuccess;
}
}

namespace {

void an_error_that_somebody_left_is_not_ours() {
  pending = cudaErrorInvalidDevice;
  const std::string why = launch();
  CHECK(contains(why, "kernel(int): not launched, because an earlier CUDA call, not one of ours"));
  CHECK(contains(why, "cudaErrorInvalidDevice (what CUDA says of it)"));
  CHECK(launched == 0);
  CHECK(launch().empty());  // one call raises for it, not each
  CHECK(launched == 1);
}

void an_error_that_ended_the_context_stays() {
  for (int i = 0; i < 2; ++i) {
    pending = cudaErrorIllegalAddress;
    CHECK(contains(launch(), "a kernel that ran before it, which may be anyone's, failed"));
    CHECK(pending == cudaErrorIllegalAddress);
  }
  pending = cudaSuccess;
  of_launch = cudaErrorIllegalAddress;  // found out by our launch
  CHECK(contains(launch(), "a kernel that ran before it, which may be anyone's, failed"));
  of_launch = pending = cudaSuccess;
  CHECK(launched == 1);
}

void our_own_error_is_ours_alone() {
  of_launch = cudaErrorInvalidValue;
  CHECK(contains(launch(), "kernel(int): launch failed: cudaErrorOther (what CUDA says of it)"));
  CHECK(!contains(launch(), "threads"));
  CHECK(contains(launch({.grid = {1}, .block = {256}}),
                 "it was compiled for at most 192 threads of a block, got 256"));
  CHECK(pending == cudaSuccess);  // nobody else finds it
  of_launch = cudaSuccess;
  CHECK(contains(launch({.grid = {1}, .block = {256}, .max_threads = 192}),
                 "block x must be 1 to 192, got 256"));
}

void a_block_has_as_much_shared_memory_as_the_device() {
  block_shared = 99 * 1024;    // of an sm_89
  const int most = 98 * 1024;  // beside what the kernel has of its own
  CHECK(contains(launch({.grid = {1}, .block = {32}, .shared_bytes = most + 1}),
                 "kernel(int): shared_bytes must be 0 to 100352 on this GPU, got 100353"));
  CHECK(allowed == 0);
  CHECK(launch({.grid = {1}, .block = {32}, .shared_bytes = most}).empty());
  CHECK(allowed == most);
  CHECK(contains(launch({.grid = {1}, .block = {32}, .shared_bytes = most + 1}), "got 100353"));
}

void launches_are_programmatic_unless_the_environment_says_no(bool wanted) {
  programmatic = 0;
  CHECK(launch({.grid = {1}, .block = {32}, .programmatic = true}).empty());
  CHECK(programmatic == (wanted ? 1 : 0));
  CHECK(launch().empty());
  CHECK(programmatic == (wanted ? 1 : 0));
}

void another(int) {}

void a_kernel_prefers_the_cache_once_a_device() {
  of_attribute = cudaErrorInvalidValue;
  std::string why;
  try {
    kittens::host::prefer_l1<kernel>();
  } catch (const kittens::host::error& error) {
    why = error.what();
  }
  of_attribute = cudaSuccess;
  CHECK(contains(why, "kernel(int): cannot prefer the L1 cache: what CUDA says of it"));
  CHECK(pending == cudaSuccess);  // nobody else finds it
  for (const int device : {0, 1, 0, 1, 63, 63}) {
    current_device = device;
    kittens::host::prefer_l1<kernel>();
    kittens::host::prefer_l1<another>();
  }
  CHECK(carveouts == std::vector<int>(6, cudaSharedmemCarveoutMaxL1));
  current_device = 64;  // of which nothing is kept
  kittens::host::prefer_l1<kernel>();
  kittens::host::prefer_l1<kernel>();
  CHECK(carveouts.size() == 8);
  current_device = 0;
}

}  // namespace

int main(int, char** arguments) {
  an_error_that_somebody_left_is_not_ours();
  an_error_that_ended_the_context_stays();
  our_own_error_is_ours_alone();
  a_block_has_as_much_shared_memory_as_the_device();
  a_kernel_prefers_the_cache_once_a_device();
  launches_are_programmatic_unless_the_environment_says_no(std::string(arguments[1]) == "pdl");
  return failed == 0 ? 0 : 1;
}
