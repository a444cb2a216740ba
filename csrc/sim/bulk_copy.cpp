#include "sim/bulk_copy.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "sim/block.hpp"
#include "sim/bulk_api.hpp"
#include "sim/race/copies.hpp"
#include "sim/race/race.hpp"
#include "sim/timeline.hpp"

namespace kittens::sim {
namespace {

// A copy on the timeline, where there is one.
int begin_span(const copy_origin& from) {
  timeline* const traced = from.by->in_cluster().traced();
  if (traced == nullptr) return 0;
  return traced->begin(from.by->rank(), "TMA", from.name, from.site, from.where);
}

void end_span(const copy_origin& from, int span) {
  if (timeline* const traced = from.by->in_cluster().traced()) traced->end(span);
}

struct load {
  copy_origin from;
  std::vector<copy_target> targets;
  int64_t bytes = 0;
  load_steps steps;
  int span = begin_span(from);

  void run() {
    end_span(from, span);
    for (const copy_target& t : targets) {
      steps.fill(from, t.dst);
      t.in->forget_copy(this);
      t.full->complete_bytes(bytes, t.order, {from.site, &from.where});
    }
  }
};

struct store {
  copy_origin from;
  store_steps steps;
  std::vector<uint8_t> packed;
  bool is_read = false;
  int span = begin_span(from);

  void read() {
    if (!std::exchange(is_read, true)) steps.read(packed.data());
  }
  void write() {
    read();
    steps.write(from, packed.data());
    end_span(from, span);
  }
};

// Notes what a copy that the thread starts touches in the shared memory of `in`, from `start` on.
void note_pieces(race::thread& t, const race::agent_access& copy, block& in, const uint8_t* start,
                 const touched_pieces& pieces) {
  pieces(start, [&](const uint8_t* p, int64_t bytes) {
    t.in.access_agent(t, copy, in.rank(), p - in.shared(), bytes);
  });
}

void note_load(race::thread& t, std::vector<copy_target>& targets, const load_steps& steps) {
  for (copy_target& to : targets) {
    race::agent_access copy =
        race::start_load(t, to.full->loads(), to.in->rank(), to.full->offset());
    note_pieces(t, copy, *to.in, to.dst, steps.pieces);
    copy.writes = false;
    if (steps.source != nullptr) {
      t.in.access_agent(t, copy, t.rank, steps.source - self->shared, steps.source_bytes);
    }
    to.order = copy.time;
  }
  ++t.time;
}

bool is_over(block& in, const std::vector<pending_store>& group) {
  return std::all_of(group.begin(), group.end(), [&](const pending_store& s) {
    return s.is_waited_for && in.asynchronous().is_done(s.written);
  });
}

}  // namespace

copy_origin copy_origin::here(const char* name, call_site site, bool is_constant) {
  if (self->is_early && !is_constant) report_early(name, site);
  return {name, &block::running(), self->thread, site, trace::capture(), false};
}

void copy_origin::check_guards(const uint8_t* p, int64_t bytes) const {
  const guarded_buffers* guards = by->in_cluster().launch().guards.get();
  if (guards == nullptr) return;
  char text[128] = "";
  {
    const std::string why = why_guarded(*guards, p, bytes);
    why.copy(text, sizeof text - 1);
  }
  if (text[0] == '\0') return;
  by->fail_at("MEMORY", site, where, "%s by thread %d: %s", name, thread, text);
}

void check_shared_range(const char* name, const void* p, int64_t bytes, int64_t alignment,
                        call_site site) {
  const auto offset = static_cast<const uint8_t*>(p) - self->shared;
  if (offset < 0 || offset + bytes > self->shared_bytes) {
    report_shared_access(name, p, bytes, site);
  }
  if (offset % alignment != 0) {
    block::running().fail(
        "SHARED MEMORY", site, "%s by thread %d: offset %lld is not aligned to %lld bytes", name,
        self->thread, static_cast<long long>(offset), static_cast<long long>(alignment));
  }
}

std::vector<copy_target> find_targets(const char* name, void* dst, void* full, unsigned blocks,
                                      call_site site) {
  check_shared(name, full, sizeof(uint64_t), site);
  block& mine = block::running();
  cluster& all = mine.in_cluster();
  if (blocks == 0 || blocks >> all.size() != 0) {
    mine.fail("CLUSTER", site,
              "%s by thread %d: blocks must be a mask of the cluster's %d blocks, got 0x%x", name,
              self->thread, all.size(), blocks);
  }
  const auto dst_offset = static_cast<uint8_t*>(dst) - mine.shared();
  const auto full_offset = static_cast<uint8_t*>(full) - mine.shared();
  for (int rank = 0; rank < all.size(); ++rank) {
    if ((blocks >> rank & 1) == 0) continue;
    block& b = all.block_at(rank);
    if (b.alive() == 0) {
      mine.fail("CLUSTER", site,
                "%s by thread %d: all threads of rank %d have exited, and its shared memory with "
                "them",
                name, self->thread, rank);
    }
    race::access_barrier(rank, full_offset, false);
    b.mbarriers().find(full_offset, name, site).check_fenced(name, {site});
  }
  std::vector<copy_target> targets;
  for (int rank = 0; rank < all.size(); ++rank) {
    if ((blocks >> rank & 1) == 0) continue;
    block& b = all.block_at(rank);
    targets.push_back({&b, b.shared() + dst_offset, &b.mbarriers().find(full_offset, name, site)});
  }
  return targets;
}

void start_load(copy_origin from, std::vector<copy_target> targets, int64_t bytes,
                load_steps steps) {
  if (self->race != nullptr) note_load(*self->race, targets, steps);
  async_work& work = from.by->asynchronous();
  auto l =
      std::make_shared<load>(load{std::move(from), std::move(targets), bytes, std::move(steps)});
  for (const copy_target& t : l->targets) {
    if (work.is_delayed()) l->steps.spoil(t.dst);
    t.in->await_copy(l.get(), l->from);
  }
  work.submit([l = std::move(l)] { l->run(); });
}

void start_store(copy_origin from, const uint8_t* src, int64_t bytes, store_steps steps) {
  if (race::thread* const t = self->race) {
    note_pieces(*t, race::start_store(*t), *from.by, src, steps.pieces);
    ++t->time;
  }
  async_work& work = from.by->asynchronous();
  std::vector<pending_store>& open = from.by->threads().current().open_bulk_stores;
  open.push_back({0, 0, false, from.site, from.where});
  auto s = std::make_shared<store>(
      store{std::move(from), std::move(steps), std::vector<uint8_t>(bytes)});
  open.back().read = work.submit([s] { s->read(); });
  open.back().written = work.submit([s = std::move(s)] { s->write(); });
}

void bulk_commit() {
  fiber& me = block::running().threads().current();
  me.bulk_groups.push_back(std::exchange(me.open_bulk_stores, {}));
  if (self->race != nullptr) self->race->stores.close();
}

void bulk_wait(int groups_under_way) {
  block& b = block::running();
  fiber& me = b.threads().current();
  if (self->race != nullptr) race::wait_for(*self->race, self->race->stores, groups_under_way);
  while (static_cast<int>(me.bulk_groups.size()) > groups_under_way) {
    for (const pending_store& s : me.bulk_groups.front()) {
      b.asynchronous().finish(s.read);
      b.asynchronous().finish(s.written);
    }
    me.bulk_groups.erase(me.bulk_groups.begin());
  }
}

void bulk_wait_read(int groups_under_way) {
  block& b = block::running();
  if (self->race != nullptr) race::wait_for(*self->race, self->race->stores, groups_under_way);
  auto& groups = b.threads().current().bulk_groups;
  const int count = static_cast<int>(groups.size()) - groups_under_way;
  for (int i = 0; i < count; ++i) {
    for (pending_store& s : groups[i]) {
      b.asynchronous().finish(s.read);
      s.is_waited_for = true;
    }
  }
  while (!groups.empty() && is_over(b, groups.front())) groups.erase(groups.begin());
}

void check_stores_at_exit(block& in) {
  const fiber& me = in.threads().current();
  for (const pending_store& s : me.open_bulk_stores) {
    in.fail_at("BULK COPY", s.site, s.where,
               "thread %d exits without bulk_commit after a store of this line", me.view.thread);
  }
  for (const auto& group : me.bulk_groups) {
    for (const pending_store& s : group) {
      if (s.is_waited_for) continue;
      in.fail_at("BULK COPY", s.site, s.where,
                 "thread %d exits while its store of this line may still read shared memory: "
                 "bulk_wait or bulk_wait_read is missing",
                 me.view.thread);
    }
  }
}

}  // namespace kittens::sim
