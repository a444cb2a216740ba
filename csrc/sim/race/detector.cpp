#include "sim/race/detector.hpp"

#include <algorithm>
#include <utility>

#include "sim/block.hpp"

namespace kittens::sim::race {

detector::detector(cluster& in)
    : cluster_(in),
      block_threads_(in.launch().block_threads),
      shared_bytes_(in.launch().shared_bytes),
      exits_(in.size()) {
  const int threads = in.size() * block_threads_;
  threads_.reserve(threads);
  for (int i = 0; i < threads; ++i) {
    const int rank = i / block_threads_, number = i % block_threads_;
    threads_.emplace_back(*this, i, rank, number);
    actors_.push_back({actor_kind::thread, rank, number, 1, rank});
  }
  for (int rank = 0; rank < in.size(); ++rank) shadows_.emplace_back(shared_bytes_);
  fences_.resize(threads);
}

detector::~detector() = default;

int detector::new_actor(const actor& a) {
  actors_.push_back(a);
  return static_cast<int>(actors_.size()) - 1;
}

int64_t detector::offset_of(const thread& t, const void* p) const {
  return static_cast<const uint8_t*>(p) - cluster_.block_at(t.rank).shared();
}

access detector::of(const thread& t, uint32_t site, bool writes) const {
  access a;
  a.actor = a.asker = t.actor;
  a.time = a.asker_time = t.time;
  a.asker_fenced_time = t.fenced_time;
  a.site = site;
  a.writes = writes;
  a.past = &t.past;
  a.fences = &fences_;
  return a;
}

void detector::touch(const access& a, int rank, int64_t offset, int64_t bytes) {
  if (offset < 0 || offset + bytes > shared_bytes_) return;  // reported elsewhere
  touched_rank_ = rank;
  shadows_[rank].touch(offset, bytes, a, *this);
}

void detector::access_plain(thread& t, const uint8_t* p, int64_t bytes, bool writes,
                            const void* pc) {
  if (p < t.loans_to && p + bytes > t.loans_from) access_loan(t, p, bytes, writes, pc);
  for (int i = 0; i < cluster_.size(); ++i) {
    const int rank = (t.rank + i) % cluster_.size();  // its own block's memory first
    const int64_t offset = p - cluster_.block_at(rank).shared();
    if (offset < 0 || offset >= shared_bytes_) continue;
    const access a = of(t, places_.number(pc), writes);
    touch(a, rank, offset, bytes);
    if (i != 0) remote_access(t.actor, t.time, a.site, rank);
    return;
  }
}

void detector::access_call(thread& t, const void* p, int64_t bytes, bool writes) {
  touch(of(t, places_.number(t.called), writes), t.rank, offset_of(t, p), bytes);
}

void detector::access_barrier(thread& t, int rank, int64_t offset, bool writes) {
  const access a = of(t, places_.number(t.called), writes);
  touch(a, rank, offset, sizeof(uint64_t));
  if (rank != t.rank) remote_access(t.actor, t.time, a.site, rank);
}

void detector::access_atomic(thread& t, const void* p, int64_t bytes, bool writes, const void* pc) {
  access a = of(t, places_.number(pc), writes);
  a.is_atomic = true;
  touch(a, t.rank, offset_of(t, p), bytes);
}

void detector::access_agent(thread& t, const agent_access& by, int rank, int64_t offset,
                            int64_t bytes) {
  access a = of(t, places_.number(t.called), by.writes);
  a.actor = by.actor;
  a.time = by.time;
  a.by_proxy = by.by_proxy;
  touch(a, rank, offset, bytes);
  if (rank != t.rank) remote_access(by.actor, by.time, a.site, rank);
}

void detector::access_product(const agent_access& by, const history& past, uint32_t site, int rank,
                              int64_t offset, int64_t bytes) {
  access a;
  a.actor = by.actor;
  a.time = by.time;
  a.by_proxy = by.by_proxy;
  a.site = site;
  a.past = &past;
  a.fences = &fences_;
  touch(a, rank, offset, bytes);
}

void detector::access_loan(thread& t, const uint8_t* p, int64_t bytes, bool writes,
                           const void* pc) {
  for (const loan& l : t.loans) {
    if (p >= l.from + l.bytes || p + bytes <= l.from) continue;
    finding f;
    f.kind = finding_kind::accumulator;
    f.earlier = {t.actor, 0, l.site, true};
    f.later = {t.actor, 0, places_.number(pc), writes};
    f.rank = t.rank;
    f.offset = (p - l.from) / static_cast<int64_t>(sizeof(float));
    note(f);
  }
}

void detector::remote_access(int actor, uint32_t time, uint32_t site, int rank) {
  uint32_t& last = remotes_[{rank, actor, site}];
  last = std::max(last, time);
}

void detector::leave(thread& t) { t.release(exits_[t.rank]); }

// A block's shared memory ends with its last thread: the others' accesses to it must come before.
void detector::check_exits() {
  for (const auto& [which, time] : remotes_) {
    const auto& [rank, actor, site] = which;
    const history& known = exits_[rank].sum();
    if (std::max(known.seen.at(actor), known.ended.at(actor)) >= time) continue;
    finding f;
    f.kind = finding_kind::exit;
    f.rank = rank;
    f.later = {actor, time, site, false};
    note(f);
  }
}

void detector::found(fault f, const access& later, const deed& earlier, int64_t offset) {
  constexpr finding_kind kKinds[] = {finding_kind::no_fence, finding_kind::unordered,
                                     finding_kind::unwritten};
  finding now;
  now.kind = kKinds[static_cast<int>(f)];
  now.earlier = earlier;
  now.later = {later.actor, later.time, later.site, later.writes};
  now.rank = touched_rank_;
  now.offset = offset;
  // Two that nothing orders come in any order: they are told in one.
  if (f == fault::unordered) {
    const auto rank_of = [&](const deed& d) {
      return std::make_pair(!d.wrote, reinterpret_cast<uintptr_t>(places_[d.site].pc));
    };
    if (rank_of(now.later) < rank_of(now.earlier)) std::swap(now.earlier, now.later);
  }
  note(now);
}

void detector::note(const finding& f) {
  const auto [at, is_new] =
      findings_.try_emplace({f.kind, f.earlier.site, f.later.site, f.earlier.actor < 0}, f);
  finding& known = at->second;
  known.rank = std::min(known.rank, f.rank);
  known.offset = std::min(known.offset, f.offset);
  known.earlier_actors.insert(f.earlier.actor);
  known.later_actors.insert(f.later.actor);
}

// ---- threads

void thread::release(gathering& to) {
  to.add(past, actor, time, fenced_time);
  ++time;
}

void thread::fence_proxy() {
  past.fenced = past.seen;
  in.note_fence(*this, time);
  fenced_time = time++;
}

history thread::now() const {
  history all = past;
  all.seen.raise(actor, time);
  if (fenced_time > 0) all.fenced.raise(actor, fenced_time);
  return all;
}

// As C++ orders them: `order` is a std::memory_order.
void thread::atomic(const void* p, int bytes, int order, bool reads, bool writes, const void* pc) {
  in.access_atomic(*this, p, bytes, writes, pc);
  const bool acquires = order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME ||
                        order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
  const bool releases =
      order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
  history& there = in.atomics()[p];
  if (reads) (acquires ? past : unfenced_).join(there);
  if (!writes) return;
  if (!reads) there = {};  // a plain store ends what was released before
  there.join(releases ? now() : fenced_);
  ++time;
}

void thread::fence() {
  past.join(unfenced_);
  fenced_ = now();
  ++time;
}

}  // namespace kittens::sim::race
