// The devices found so far. What asks CUDA is device.cu, which is not in every build.
#include <map>
#include <mutex>

#include "kittens/host/launchers.h"

namespace kittens::host {
namespace {

struct answer {
  bool found = false;
  device value;
  std::string why_not;
};

struct device_table {
  std::atomic<device_query> query = nullptr;
  std::mutex mutex;
  std::map<int, answer> answers;
};

device_table& table() {
  static auto* const the_table = new device_table;
  return *the_table;
}

const answer& ask(int index) {
  static const answer kNoQuery{false, {}, "no CUDA kernel is built in"};
  device_table& t = table();
  const device_query query = t.query;
  if (query == nullptr) return kNoQuery;
  const std::lock_guard lock(t.mutex);
  const auto [place, is_new] = t.answers.try_emplace(index);
  answer& a = place->second;
  if (is_new) a.found = query(index, a.value, a.why_not);
  return a;
}

}  // namespace

void set_device_query(device_query query) { table().query = query; }

const device* find_device(int index) {
  const answer& a = ask(index);
  return a.found ? &a.value : nullptr;
}

std::string why_no_device(int index) { return ask(index).why_not; }

}  // namespace kittens::host
