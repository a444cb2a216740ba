#include "memory.h"

#include <cstring>
#include <new>

#include "bfloat16.h"
#include "nccl.h"

#ifdef WITH_CUDA
#include <cuda_runtime.h>
#endif

namespace gpt2 {
namespace {

#ifdef WITH_CUDA
void check(cudaError_t status, const std::string& doing) {
  if (status != cudaSuccess) throw error(doing + ": " + cudaGetErrorString(status));
}
float milliseconds_between(void* from, void* to) {  // two events, both done
  float took = 0;
  check(cudaEventElapsedTime(&took, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to)),
        "the time between events");
  return took;
}

// What `work` launches on the stream, as a graph. The mode is relaxed, for a kernel is loaded when
// it is launched for the first time, which allocates.
cudaGraph_t record(cudaStream_t s, const std::function<void()>& work) {
  check(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed), "recording a graph");
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(s, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(s, &graph), "recording a graph");
  return graph;
}
#endif

}  // namespace

device device_of([[maybe_unused]] int64_t index) {
#ifdef WITH_CUDA
  const device* const found = thunderkittens::find_device(static_cast<int>(index));
  if (found == nullptr) throw error(thunderkittens::why_no_device(static_cast<int>(index)));
  return *found;
#else
  return thunderkittens::simulated_device();
#endif
}

std::string name_of([[maybe_unused]] const device& d) {
#ifdef WITH_CUDA
  cudaDeviceProp properties{};
  if (!d.is_simulated()) {
    check(cudaGetDeviceProperties(&properties, d.index), "asking for the device's name");
    return properties.name;
  }
#endif
  return "";
}

counters& count() {
  static counters the_counters;
  return the_counters;
}

void* arena::take_bytes(int64_t bytes) {
  std::byte* const at = base_ == nullptr ? nullptr : base_ + taken_;
  taken_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return at;
}

void arena::allocate_taken() {
  const int64_t bytes = std::exchange(taken_, 0);
  if (bytes == 0) return;
  ++count().allocations;
  base_ =
      static_cast<std::byte*>(between_ == nullptr ? new_memory(bytes) : between_->allocate(bytes));
  if (simulated_ || where_ == place::host) {
    std::memset(base_, 0, bytes);
    return;
  }
#ifdef WITH_CUDA
  check(cudaMemset(base_, 0, bytes), "clearing memory");
  check(cudaDeviceSynchronize(), "clearing memory");  // it is another stream's than the queue's
#endif
}

void* arena::new_memory(int64_t bytes) const {
  const std::string doing = "allocation of " + std::to_string(bytes) + " bytes";
  void* data = nullptr;
  if (simulated_) {
    data = ::operator new(bytes, std::align_val_t{kAlignment}, std::nothrow);
    if (data == nullptr) throw error(doing + ": out of memory");
    return data;
  }
#ifdef WITH_CUDA
  check(where_ == place::host ? cudaMallocHost(&data, bytes) : cudaMalloc(&data, bytes), doing);
#endif
  return data;
}

arena::~arena() {
  if (between_ != nullptr) return;  // it is not ours
  if (simulated_) ::operator delete(base_, std::align_val_t{kAlignment});
#ifdef WITH_CUDA
  if (!simulated_) where_ == place::host ? cudaFreeHost(base_) : cudaFree(base_);
#endif
}

queue::queue(const device& d) : simulated_(d.is_simulated()) {
#ifdef WITH_CUDA
  if (simulated_) return;
  check(cudaSetDevice(d.index), "choosing the device");
  cudaStream_t created = nullptr;
  check(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking), "creating a stream");
  stream_ = created;
  for (void*& mark : marks_) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "creating an event");
    mark = event;
  }
#endif
}

queue::~queue() {
#ifdef WITH_CUDA
  if (simulated_) return;
  for (void* mark : marks_) cudaEventDestroy(static_cast<cudaEvent_t>(mark));
  cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
#endif
}

void queue::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  if (simulated_) return void(std::memcpy(to, from, bytes));
#ifdef WITH_CUDA
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream_)),
        "a copy");
#endif
}

void queue::clear(void* to, int64_t bytes) {
  if (simulated_) return void(std::memset(to, 0, bytes));
#ifdef WITH_CUDA
  check(cudaMemsetAsync(to, 0, bytes, static_cast<cudaStream_t>(stream_)), "clearing memory");
#endif
}

void queue::mark(int number) {
  if (simulated_) reached_[number] = clock::now();
#ifdef WITH_CUDA
  if (simulated_) return;
  check(
      cudaEventRecord(static_cast<cudaEvent_t>(marks_[number]), static_cast<cudaStream_t>(stream_)),
      "recording an event");
#endif
}

clock::time_point queue::wait(int number) {
#ifdef WITH_CUDA
  if (!simulated_) {
    using milliseconds = std::chrono::duration<float, std::milli>;
    const int before = (number + kMarks - 1) % kMarks;
    auto* const mark = static_cast<cudaEvent_t>(marks_[number]);
    const bool host_is_late = cudaEventQuery(mark) == cudaSuccess;
    cudaGetLastError();  // that it is not done is no error
    check(cudaEventSynchronize(mark), "a step");
    reached_[number] = clock::now();
    if (!host_is_late || reached_[before] == clock::time_point{}) return reached_[number];
    const milliseconds took(milliseconds_between(marks_[before], mark));
    reached_[number] = reached_[before] + std::chrono::duration_cast<clock::duration>(took);
  }
#endif
  return reached_[number];
}

void queue::synchronise() {
  ++count().synchronisations;
#ifdef WITH_CUDA
  if (!simulated_) check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_)), "waiting");
#endif
}

void queue::follow([[maybe_unused]] const point& p) {
#ifdef WITH_CUDA
  if (simulated_) return;
  check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream_), static_cast<cudaEvent_t>(p.event_)),
        "waiting for an event");
#endif
}

point::point([[maybe_unused]] const device& d) {
#ifdef WITH_CUDA
  if (d.is_simulated()) return;
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  event_ = event;
#endif
}

point::~point() {
#ifdef WITH_CUDA
  if (event_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
#endif
}

void point::put([[maybe_unused]] const queue& q) {
#ifdef WITH_CUDA
  if (event_ == nullptr) return;
  check(cudaEventRecord(static_cast<cudaEvent_t>(event_), static_cast<cudaStream_t>(q.handle())),
        "recording an event");
#endif
}

stopwatch::~stopwatch() {
#ifdef WITH_CUDA
  for (void* event : events_) cudaEventDestroy(static_cast<cudaEvent_t>(event));
#endif
}

void stopwatch::take() {
#ifdef WITH_CUDA
  if (!queue_.is_simulated()) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "creating an event");
    events_.push_back(event);
    return check(cudaEventRecord(event, static_cast<cudaStream_t>(queue_.handle())),
                 "recording an event");
  }
#endif
  times_.push_back(clock::now());
}

std::vector<double> stopwatch::milliseconds() const {
  std::vector<double> between;
  for (size_t i = 1; i < times_.size(); ++i) {
    between.push_back(std::chrono::duration<double, std::milli>(times_[i] - times_[i - 1]).count());
  }
#ifdef WITH_CUDA
  for (size_t i = 1; i < events_.size(); ++i) {
    between.push_back(milliseconds_between(events_[i - 1], events_[i]));
  }
#endif
  return between;
}

std::vector<float> to_host(queue& q, dtype type, const void* from, int64_t count) {
  std::vector<float> values(count);
  if (type == dtype::float32) {
    q.copy(values.data(), from, count * int64_t{sizeof(float)});
    q.synchronise();
    return values;
  }
  std::vector<bfloat16> stored(count);
  q.copy(stored.data(), from, count * int64_t{sizeof(bfloat16)});
  q.synchronise();
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(stored[i]);
  return values;
}

recording::recording(queue& q, std::function<void()> work) : queue_(q), work_(std::move(work)) {
#ifdef WITH_CUDA
  if (q.is_simulated()) return;
  const auto s = static_cast<cudaStream_t>(q.handle());
  const cudaGraph_t graph = record(s, work_);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "making a graph executable");
  graph_ = executable;
  ++count().allocations;
  check(cudaGraphUpload(executable, s), "uploading a graph");
#endif
}

recording::~recording() {
#ifdef WITH_CUDA
  if (graph_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
#endif
}

void recording::launch() {
#ifdef WITH_CUDA
  if (graph_ != nullptr) {
    const auto s = static_cast<cudaStream_t>(queue_.handle());
    return check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), s), "launching a graph");
  }
#endif
  work_();
}

}  // namespace gpt2
