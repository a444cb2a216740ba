#include "sim/barrier.hpp"

#include "sim/block.hpp"
#include "sim/facts.hpp"
#include "sim/race/race.hpp"

namespace kittens::sim {

void barrier::check(block& in, int threads, call_site site) {
  const fiber& me = in.threads().current();
  if (arrived_ > 0 && threads != expected_) {
    in.fail("BARRIER", site, "barrier %d is used for %d threads here and for %d threads at %s:%d",
            id_, threads, expected_, file_name(first_site_.file), first_site_.line);
  }
  if (who_[me.view.thread]) {
    in.fail("BARRIER", site, "thread %d arrives twice at barrier %d before it completes (%d of %d)",
            me.view.thread, id_, arrived_, expected_);
  }
  warp_arrival& first = warps_[me.warp()];
  if (first.any && first.site != site) {
    in.fail("DIVERGENCE", site, "lane %d of warp %d arrives at %s here, but lane %d of it at %s:%d",
            me.lane(), me.warp(), name().c_str(), first.lane, file_name(first.site.file),
            first.site.line);
  }
  if (!first.any) first = {true, me.lane(), site};
}

void barrier::arrive(block& in, int threads, bool waits, call_site site) {
  check(in, threads, site);
  scheduler& s = in.threads();
  if (arrived_ == 0) {
    expected_ = threads;
    first_site_ = site;
  }
  who_.set(s.current().view.thread);
  race::release(self->race, order_);
  if (++arrived_ == expected_) {
    if (id_ == 0 && self->facts != nullptr) self->facts->meet_block();
    if (waits) race::acquire(self->race, order_.sum());
    complete(s);
  } else if (waits) {
    waiting_.push_back(&s.current());
    s.wait(*this, site);
  }
}

void barrier::complete(scheduler& s) {
  for (fiber* f : waiting_) {
    race::acquire(f->view.race, order_.sum());
    s.make_ready(*f);
  }
  waiting_.clear();
  order_ = {};
  who_.reset();
  warps_ = {};
  arrived_ = 0;
}

std::string barrier::describe() const {
  return name() + ": " + std::to_string(arrived_) + " of " + std::to_string(expected_) +
         " threads have arrived";
}

void sync_block(call_site site) {
  count("sync_block", nullptr, 0, site);
  block& b = block::running();
  b.barrier_at(0).arrive(b, self->block_threads, true, site);
}

namespace {

void use_named_barrier(int id, int threads, bool waits, call_site site) {
  block& b = block::running();
  if (id < 1 || id >= barrier::kCount) {
    b.fail("BARRIER", site, "named barrier id must be 1 to %d, got %d", barrier::kCount - 1, id);
  }
  if (threads < 32 || threads % 32 != 0 || threads > self->block_threads) {
    b.fail("BARRIER", site,
           "threads of barrier %d must be a multiple of 32 up to the block's %d, got %d", id,
           self->block_threads, threads);
  }
  count(waits ? "named_barrier_sync" : "named_barrier_arrive", nullptr, 0, site);
  b.barrier_at(id).arrive(b, threads, waits, site);
}

}  // namespace

void named_barrier_sync(int id, int threads, call_site site) {
  use_named_barrier(id, threads, true, site);
}

void named_barrier_arrive(int id, int threads, call_site site) {
  use_named_barrier(id, threads, false, site);
}

}  // namespace kittens::sim
