// The devices found so far. What asks CUDA is device.cu, which is not in every build.
#include <map>
#include <mutex>

#include "kittens/host/launchers.h"

namespace kittens::host {
namespace {

struct answer {
  bool found = false;
  device value, generic;
  std::string why_not;
};

struct device_table {
  std::atomic<const cuda_queries*> queries = nullptr;
  std::mutex mutex;
  std::map<int, answer> answers;
};

device_table& table() {
  static auto* const the_table = new device_table;
  return *the_table;
}

const answer& ask(int index) {
  static const answer kNoQuery{false, {}, {}, "no CUDA kernel is built in"};
  device_table& t = table();
  const cuda_queries* const queries = t.queries;
  if (queries == nullptr) return kNoQuery;
  const std::lock_guard lock(t.mutex);
  const auto [place, is_new] = t.answers.try_emplace(index);
  answer& a = place->second;
  if (is_new) {
    a.found = queries->find_device(index, a.value, a.why_not);
    a.value.index = index;
    a.generic = a.value;
    a.generic.generic = true;
  }
  return a;
}

}  // namespace

void set_cuda_queries(const cuda_queries& queries) { table().queries = &queries; }

const device* find_device(int index, bool generic) {
  const answer& a = ask(index);
  return !a.found ? nullptr : generic ? &a.generic : &a.value;
}

std::string why_no_device(int index) { return ask(index).why_not; }

bool is_capturing(stream s) {
  const cuda_queries* const queries = table().queries;
  return queries != nullptr && queries->is_capturing(s);
}

counter_array find_counters() {
  const cuda_queries* const queries = table().queries;
  return queries != nullptr ? queries->find_counters() : counter_array{};
}

std::optional<uint64_t> stream_id(stream s) {
  const cuda_queries* const queries = table().queries;
  return queries != nullptr ? queries->stream_id(s) : std::nullopt;
}

}  // namespace kittens::host
