#include "exchange.h"

#include <algorithm>

#include "kernels.h"

namespace gpt2 {

exchange::exchange(const device& d, const nccl& between, const shards& s, dtype type,
                   void* received, queue& computation)
    : nccl_(between),
      shards_(s),
      type_(type),
      received_(received),
      computation_(computation),
      own_(d),
      computed_(d),
      exchanged_(d) {
  for (size_t i = 0; i < s.buckets.size(); ++i) gathered_.push_back(std::make_unique<point>(d));
}

void exchange::sum_gradients(size_t number, void* gradients) {
  computed_.put(computation_);
  own_.follow(computed_);
  const bucket& b = shards_.buckets[number];
  nccl_.exchange_parts(b.in(gradients, type_), received_, b.part, type_, own_.handle());
  // The next exchange may use the same memory: NCCL lets no rank send before all have come to it on
  // their streams, and here that is behind the sum.
  add_parts(type_, b.part, nccl_.count(), received_, b.part_in(gradients, type_, nccl_.rank()),
            own_.handle());
}

void exchange::await_sums() {
  exchanged_.put(own_);
  computation_.follow(exchanged_);
}

void exchange::gather_weights(void* weights) {
  computed_.put(computation_);
  own_.follow(computed_);
  const auto gather = [&](size_t number) {
    const bucket& b = shards_.buckets[number];
    nccl_.gather_parts(b.in(weights, type_), b.part, type_, own_.handle());
    gathered_[number]->put(own_);
  };
  gather(shards_.of_vectors());
  for (size_t number = 0; number < shards_.of_vectors(); ++number) gather(number);
}

void exchange::await_weights(size_t number) { computation_.follow(*gathered_[number]); }

void exchange::gather_numbers(float* numbers, int64_t count) {
  computed_.put(computation_);
  own_.follow(computed_);
  nccl_.gather_parts(numbers, count, dtype::float32, own_.handle());
  await_sums();
}

std::vector<float> exchange::whole_state(const float* state, void* memory, int64_t bytes) {
  const int64_t ranks = nccl_.count(), rank = nccl_.rank();
  const int64_t most = bytes / int64_t{sizeof(float)} / ranks;  // of a part at once
  std::vector<float> values(rank == 0 ? shards_.total : 0);
  auto* const parts = static_cast<float*>(memory);
  for (const bucket& b : shards_.buckets) {
    for (int64_t done = 0; done < b.part; done += most) {
      const int64_t count = std::min(most, b.part - done);
      computation_.copy(parts + rank * count, state + done, count * int64_t{sizeof(float)});
      nccl_.gather_parts(parts, count, dtype::float32, computation_.handle());
      for (int64_t of = 0; rank == 0 && of < ranks; ++of) {
        computation_.copy(&values[b.offset + of * b.part + done], parts + of * count,
                          count * int64_t{sizeof(float)});
      }
      computation_.synchronise();
    }
    state += b.part;
  }
  return values;
}

}  // namespace gpt2
