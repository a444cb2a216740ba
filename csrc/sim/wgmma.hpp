// The asynchronous products (wgmma) of a warpgroup.
//
// A thread that asks for a product never waits there. When all 128 have asked, the product is work
// of the tensor core, which does a warpgroup's products in order, whenever the policy says so. From
// the request until the thread waits for it, the accumulators are the tensor core's: the thread's
// registers hold kPoison meanwhile, so that what is computed from them is NaN, and what is written
// to them is seen.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <vector>

#include "sim/async_work.hpp"
#include "sim/race/product.hpp"
#include "sim/scheduler.hpp"
#include "sim/tensor_core.hpp"

namespace kittens::sim {

class block;

class warpgroup final : public waitable {
 public:
  void start(block& in, int index);

  // What the current thread does:
  void issue(const wgmma_request& request, float* d, const uint32_t* a, call_site site);
  void fence();
  void commit();
  void wait(int groups_under_way, call_site site);
  void leave();  // it ends

  std::string describe() const override;

 private:
  // The accumulators of one or more products that follow each other.
  struct accumulator {
    int width = 0;
    int holders = 0;            // threads that have not got theirs back
    std::vector<float> values;  // [64][width]
    void exchange(int thread, float* registers, bool give_back);
  };
  struct product {
    wgmma_request request;
    call_site site;
    accumulator* sum = nullptr;
    bool continues = false;  // `sum` was in flight already
    int first_thread = 0, arrived = 0;
    int span = 0;  // on the timeline
    uint32_t a[kWarpgroupThreads][4];
    race::product_start start;  // for race mode
  };
  // What a thread has lent to the tensor core.
  struct loan {
    accumulator* sum = nullptr;
    float* registers = nullptr;
    uint64_t last = 0;  // the number of the last product that uses them
    call_site site;     // of that one
  };
  struct thread_state {
    uint64_t issued = 0;           // products
    bool fenced = false;           // since it last closed a group or waited
    std::vector<uint64_t> groups;  // how many products were issued at each commit, oldest first
    uint64_t committed = 0;        // products
    std::vector<loan> loans;
  };

  thread_state& current();
  void check_operands(const wgmma_request& request, call_site site);
  void check_agreement(const product& p, const wgmma_request& request, call_site site);
  void check_operand(const char* name, uint64_t descriptor, bool is_mn_major, int extent,
                     call_site site);
  loan* find_loan(thread_state& mine, const float* d, int width, call_site site);
  product& begin(const wgmma_request& request, const loan* own, call_site site);
  void complete(product& p);  // it has all its threads
  void note_complete(product& p);
  void note_reads(const product& p);  // for race mode
  void do_next();                     // the oldest product
  void give_back(thread_state& mine, uint64_t done, call_site site);

  block* block_ = nullptr;
  int index_ = 0;
  std::vector<thread_state> threads_;  // [128], from the first use on
  std::list<accumulator> accumulators_;
  std::deque<product> queue_;               // not done yet, oldest first
  uint64_t done_ = 0;                       // products
  std::deque<async_work::ticket> tickets_;  // of products that all threads have asked for
  std::vector<fiber*> waiting_;
  race::product_agent agent_;  // for race mode
};

}  // namespace kittens::sim
