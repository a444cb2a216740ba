// cp.async on the block's asynchronous work.
#include <cstring>
#include <utility>

#include "sim/api.hpp"
#include "sim/block.hpp"
#include "sim/race/copies.hpp"
#include "sim/race/race.hpp"
#include "sim/shared_memory.hpp"

namespace kittens::sim {

void cp_async(void* dst, const void* src, int bytes, bool predicate, call_site site) {
  check_shared("cp_async", dst, bytes, site);
  if (predicate) check_global("cp_async", src, bytes, false, site);
  KITTENS_RACE_CALL("cp_async", site);
  if (self->race != nullptr) race::start_copy(*self->race, dst, bytes);
  block& b = block::running();
  if (b.asynchronous().is_delayed()) poison(static_cast<uint8_t*>(dst), bytes);
  const auto ticket = b.asynchronous().submit([=] {
    if (predicate) {
      std::memcpy(dst, src, bytes);
    } else {
      std::memset(dst, 0, bytes);
    }
  });
  b.threads().current().open_copies.push_back(ticket);
}

void cp_async_commit() {
  fiber& me = block::running().threads().current();
  me.copy_groups.push_back(std::exchange(me.open_copies, {}));
  if (self->race != nullptr) self->race->copies.close();
}

void cp_async_wait(int groups_under_way) {
  block& b = block::running();
  fiber& me = b.threads().current();
  if (self->race != nullptr) race::wait_for(*self->race, self->race->copies, groups_under_way);
  while (static_cast<int>(me.copy_groups.size()) > groups_under_way) {
    for (const auto ticket : me.copy_groups.front()) b.asynchronous().finish(ticket);
    me.copy_groups.erase(me.copy_groups.begin());
  }
}

}  // namespace kittens::sim
