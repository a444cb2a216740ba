#include "sim/cluster_barrier.hpp"

#include <utility>

#include "sim/block.hpp"
#include "sim/bulk_api.hpp"
#include "sim/race/race.hpp"

namespace kittens::sim {

void cluster_barrier::complete_if_all(cluster& in, int alive) {
  threads_ = alive;
  if (arrived_ == 0 || arrived_ < alive) return;
  arrived_ = 0;
  ++phase_;
  order_before_ = std::exchange(order_, {});
  for (fiber* f : std::exchange(waiting_, {})) in.threads().make_ready(*f);
}

void cluster_barrier::arrive(cluster& in, call_site site) {
  fiber& me = in.threads().current();
  if (me.cluster_phase != 0) {
    block::running().fail("BARRIER", site,
                          "thread %d arrives twice at the cluster's barrier, without cluster_wait "
                          "in between",
                          me.view.thread);
  }
  me.cluster_phase = phase_;
  race::release(me.view.race, order_);
  ++arrived_;
  complete_if_all(in, in.threads().alive());
}

void cluster_barrier::wait(cluster& in, call_site site) {
  fiber& me = in.threads().current();
  if (me.cluster_phase == 0) {
    block::running().fail("BARRIER", site,
                          "thread %d waits for the cluster's barrier without cluster_arrive before",
                          me.view.thread);
  }
  if (me.cluster_phase == phase_) {
    waiting_.push_back(&me);
    in.threads().wait(*this, site);
  }
  race::acquire(me.view.race, order_before_.sum());
  me.cluster_phase = 0;
}

void cluster_barrier::leave(cluster& in) {
  const fiber& me = in.threads().current();
  if (me.cluster_phase == phase_) --arrived_;
  complete_if_all(in, in.threads().alive() - 1);
}

std::string cluster_barrier::describe() const {
  return "the cluster's barrier: " + std::to_string(arrived_) + " of " + std::to_string(threads_) +
         " threads have arrived";
}

void cluster_arrive(call_site site) {
  count("cluster_arrive", nullptr, 0, site);
  cluster& c = cluster::running();
  c.barrier().arrive(c, site);
}

void cluster_wait(call_site site) {
  count("cluster_wait", nullptr, 0, site);
  cluster& c = cluster::running();
  c.barrier().wait(c, site);
}

}  // namespace kittens::sim
