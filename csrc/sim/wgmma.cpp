#include "sim/wgmma.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "sim/block.hpp"
#include "sim/facts.hpp"
#include "sim/race/race.hpp"
#include "sim/shared_memory.hpp"
#include "sim/timeline.hpp"

namespace kittens::sim {
namespace {

// `m64n128k16 of bf16, a MN-major at 0x…, b K-major at 0x…, adding`
struct request_text {
  char text[160];

  explicit request_text(const wgmma_request& r) {
    const auto order = [](bool mn_major) { return mn_major ? "MN-major" : "K-major"; };
    char a[48] = "a in registers";
    if (!r.a_in_registers) {
      std::snprintf(a, sizeof a, "a %s at 0x%llx", order(r.a_is_mn_major),
                    static_cast<unsigned long long>(r.a));
    }
    std::snprintf(text, sizeof text, "m64n%dk16 of %s, %s, b %s at 0x%llx, %s", r.width,
                  r.type == matrix_type::half ? "half" : "bf16", a, order(r.b_is_mn_major),
                  static_cast<unsigned long long>(r.b), r.accumulate ? "adding" : "not adding");
  }
};

// The first of the registers that is not kPoison; −1 if there is none. count is a multiple of 4.
int find_written(const float* registers, int count) {
  constexpr uint64_t kPair = uint64_t{kPoison} << 32 | kPoison;
  uint64_t difference = 0;
  for (int i = 0; i < count; i += 4) {
    uint64_t pairs[2];
    std::memcpy(pairs, registers + i, sizeof pairs);
    difference |= (pairs[0] ^ kPair) | (pairs[1] ^ kPair);
  }
  if (difference == 0) return -1;
  int first = 0;
  while (std::memcmp(registers + first, &kPoison, sizeof kPoison) == 0) ++first;
  return first;
}

}  // namespace

void warpgroup::start(block& in, int index) {
  block_ = &in;
  index_ = index;
}

warpgroup::thread_state& warpgroup::current() {
  if (threads_.empty()) threads_.resize(kWarpgroupThreads);
  return threads_[self->thread % kWarpgroupThreads];
}

// ---- asking for a product

void warpgroup::issue(const wgmma_request& request, float* d, const uint32_t* a, call_site site) {
  thread_state& mine = current();
  loan* own = find_loan(mine, d, request.width, site);
  const uint64_t place = mine.issued - done_;  // in the queue
  const bool is_first = place == queue_.size();
  if (is_first) check_operands(request, site);
  product& p = is_first ? begin(request, own, site) : queue_[place];
  if (!is_first) check_agreement(p, request, site);
  if (!mine.fenced) {
    block_->fail("WGMMA", site,
                 "thread %d asks for a product without wgmma_fence since its registers were last "
                 "its own",
                 self->thread);
  }
  if (p.continues ? own == nullptr || own->sum != p.sum : own != nullptr) {
    block_->fail("DIVERGENCE", site,
                 "threads %d and %d of a warpgroup disagree: the accumulators of one of them are "
                 "those of a product under way",
                 p.first_thread, self->thread);
  }
  const int thread = self->thread % kWarpgroupThreads;
  if (own == nullptr) {
    if (request.accumulate) p.sum->exchange(thread, d, false);
    poison(reinterpret_cast<uint8_t*>(d), request.width / 2 * int64_t{sizeof(float)});
    ++p.sum->holders;
    own = &mine.loans.emplace_back(loan{p.sum, d});
    if (self->race != nullptr) race::lend(*self->race, d, request.width / 2 * sizeof(float));
  }
  own->last = mine.issued++;
  own->site = site;
  if (request.a_in_registers) std::memcpy(p.a[thread], a, sizeof p.a[thread]);
  if (self->race != nullptr) p.start.add(*self->race);
  if (++p.arrived < kWarpgroupThreads) return;
  if (self->race != nullptr) note_reads(p);
  complete(p);
}

// The loan of `d`, if it is lent.
warpgroup::loan* warpgroup::find_loan(thread_state& mine, const float* d, int width,
                                      call_site site) {
  for (loan& l : mine.loans) {
    if (l.registers == d && l.sum->width == width) return &l;
    if (l.registers < d + width / 2 && d < l.registers + l.sum->width / 2) {
      block_->fail("WGMMA", site,
                   "thread %d: the accumulators of this product of width %d are in part those of "
                   "the product of width %d at %s:%d, which is under way",
                   self->thread, width, l.sum->width, file_name(l.site.file), l.site.line);
    }
  }
  return nullptr;
}

warpgroup::product& warpgroup::begin(const wgmma_request& request, const loan* own,
                                     call_site site) {
  product& p = queue_.emplace_back();
  p.request = request;
  p.site = site;
  p.first_thread = self->thread;
  p.continues = own != nullptr;
  if (p.continues) {
    p.sum = own->sum;
  } else {
    p.sum = &accumulators_.emplace_back();
    p.sum->width = request.width;
    p.sum->values.resize(static_cast<size_t>(kProductRows * request.width));
  }
  return p;
}

void warpgroup::check_operands(const wgmma_request& request, call_site site) {
  const int threads = self->block_threads - index_ * kWarpgroupThreads;
  if (threads < kWarpgroupThreads) {
    block_->fail("WGMMA", site, "warpgroup %d has %d threads only: a product needs %d", index_,
                 threads, kWarpgroupThreads);
  }
  if (!request.a_in_registers) {
    check_operand("a", request.a, request.a_is_mn_major, kProductRows, site);
  }
  check_operand("b", request.b, request.b_is_mn_major, request.width, site);
}

void warpgroup::check_operand(const char* name, uint64_t descriptor, bool is_mn_major, int extent,
                              call_site site) {
  char why[256];
  if (shared_operand(descriptor, is_mn_major, extent).is_refused(self->shared_bytes, why)) {
    block_->fail("WGMMA", site, "operand %s (%s-major, descriptor 0x%llx): %s", name,
                 is_mn_major ? "MN" : "K", static_cast<unsigned long long>(descriptor), why);
  }
}

void warpgroup::check_agreement(const product& p, const wgmma_request& request, call_site site) {
  if (p.request == request && p.site == site) return;
  block_->fail("DIVERGENCE", site,
               "thread %d of warpgroup %d asks for %s, but thread %d for %s at %s:%d", self->thread,
               index_, request_text(request).text, p.first_thread, request_text(p.request).text,
               file_name(p.site.file), p.site.line);
}

// ---- doing it

// For the facts and the timeline.
void warpgroup::note_complete(product& p) {
  const int width = p.request.width;
  const int64_t element = 2, a_rows = p.request.a_in_registers ? 0 : kProductRows;
  count_work("wgmma",
             {.shared_bytes = (a_rows + width) * kProductDepth * element,
              .flops = 2 * kProductRows * kProductDepth * width},
             p.site);
  if (timeline* const traced = block_->in_cluster().traced()) {
    p.span = traced->begin(block_->rank(), "wgmma of warpgroup " + std::to_string(index_),
                           "m64n" + std::to_string(width) + "k16", p.site, trace::capture());
  }
}

void warpgroup::complete(product& p) {
  note_complete(p);
  async_work& work = block_->asynchronous();
  while (!tickets_.empty() && work.is_done(tickets_.front())) tickets_.pop_front();
  // A ticket does whichever product is next: there are as many of them as products to do.
  const auto ticket = work.submit([this] { do_next(); });
  if (!work.is_done(ticket)) tickets_.push_back(ticket);
  for (fiber* f : std::exchange(waiting_, {})) block_->threads().make_ready(*f);
}

void warpgroup::note_reads(const product& p) {
  race::thread& t = *self->race;
  const race::agent_access read = agent_.next(t);
  const race::history past = p.start.common();
  const auto note = [&](const shared_operand& operand) {
    operand.for_each_piece([&](int64_t offset, int64_t bytes) {
      t.in.access_product(read, past, p.start.site(), block_->rank(), offset, bytes);
    });
  };
  const wgmma_request& r = p.request;
  if (!r.a_in_registers) note({r.a, r.a_is_mn_major, kProductRows});
  note({r.b, r.b_is_mn_major, r.width});
}

void warpgroup::do_next() {
  const product& p = queue_.front();
  const wgmma_request& r = p.request;
  alignas(32) float a[kProductDepth * kProductRows], b[kProductDepth * 256];
  if (r.a_in_registers) {
    read_fragments(p.a, r.type, a);
  } else {
    shared_operand(r.a, r.a_is_mn_major, kProductRows).read(block_->shared(), r.type, a);
  }
  shared_operand(r.b, r.b_is_mn_major, r.width).read(block_->shared(), r.type, b);
  if (!r.accumulate) std::fill(p.sum->values.begin(), p.sum->values.end(), 0.0f);
  multiply_add(p.sum->values.data(), a, b, r.width);
  if (timeline* const traced = block_->in_cluster().traced()) traced->end(p.span);
  queue_.pop_front();
  ++done_;
}

// ---- waiting for it

void warpgroup::fence() { current().fenced = true; }

void warpgroup::commit() {
  thread_state& mine = current();
  mine.groups.push_back(mine.issued);
  mine.committed = mine.issued;
  mine.fenced = false;
}

void warpgroup::wait(int groups_under_way, call_site site) {
  thread_state& mine = current();
  const int closed = static_cast<int>(mine.groups.size()) - groups_under_way;
  if (closed <= 0) return;
  const uint64_t needed = mine.groups[closed - 1];
  while (done_ < needed) {
    if (tickets_.empty()) {
      waiting_.push_back(&block_->threads().current());
      block_->threads().wait(*this, site);
    } else {
      const auto ticket = tickets_.front();
      tickets_.pop_front();
      block_->asynchronous().finish(ticket);
    }
  }
  mine.groups.erase(mine.groups.begin(), mine.groups.begin() + closed);
  mine.fenced = false;
  if (self->race != nullptr) agent_.wait(*self->race, static_cast<uint32_t>(needed));
  give_back(mine, needed, site);
}

void warpgroup::give_back(thread_state& mine, uint64_t done, call_site site) {
  const int thread = self->thread % kWarpgroupThreads;
  for (loan& l : mine.loans) {
    if (l.last >= done) continue;
    if (const int i = find_written(l.registers, l.sum->width / 2); i >= 0) {
      block_->fail("WGMMA", site,
                   "thread %d wrote its accumulator %d while the product of width %d at %s:%d was "
                   "under way",
                   self->thread, i, l.sum->width, file_name(l.site.file), l.site.line);
    }
    l.sum->exchange(thread, l.registers, true);
    if (self->race != nullptr) race::give_back(*self->race, l.registers);
    if (--l.sum->holders == 0) {
      accumulators_.remove_if([&](const accumulator& a) { return &a == l.sum; });
    }
  }
  std::erase_if(mine.loans, [&](const loan& l) { return l.last < done; });
}

// Thread t of a warpgroup holds two rows of each 16 × 8 of its warp's 16 × width, two neighbours
// of each.
void warpgroup::accumulator::exchange(int thread, float* registers, bool give_back) {
  constexpr size_t kPair = 2 * sizeof(float);
  const int lane = thread % 32;
  float* const upper = values.data() + (thread / 32 * 16 + lane / 4) * width + lane % 4 * 2;
  float* const lower = upper + 8 * width;
  for (int column = 0; column < width; column += 8, registers += 4) {
    if (give_back) {
      std::memcpy(registers, upper + column, kPair);
      std::memcpy(registers + 2, lower + column, kPair);
    } else {
      std::memcpy(upper + column, registers, kPair);
      std::memcpy(lower + column, registers + 2, kPair);
    }
  }
}

void warpgroup::leave() {
  if (threads_.empty()) return;
  const thread_state& mine = current();
  if (mine.issued != mine.committed) {
    block_->fail("WGMMA", mine.loans.back().site,
                 "thread %d exits with %llu products that it has not committed (wgmma_commit)",
                 self->thread, static_cast<unsigned long long>(mine.issued - mine.committed));
  }
  if (!mine.loans.empty()) {
    block_->fail("WGMMA", mine.loans.back().site,
                 "thread %d exits without waiting for this product (wgmma_wait)", self->thread);
  }
}

std::string warpgroup::describe() const {
  const std::string name = "wgmma of warpgroup " + std::to_string(index_);
  if (queue_.empty()) return name;
  const product& p = queue_.front();
  return name + ": " + std::to_string(p.arrived) +
         " of 128 threads have asked for the product at " + file_name(p.site.file) + ":" +
         std::to_string(p.site.line);
}

// ---- what kernels call

void wgmma(const wgmma_request& request, float* d, const uint32_t* a, call_site site) {
  KITTENS_RACE_CALL("wgmma", site);
  block::running().current_warpgroup().issue(request, d, a, site);
}
void wgmma_fence() { block::running().current_warpgroup().fence(); }
void wgmma_commit() { block::running().current_warpgroup().commit(); }
void wgmma_wait(int groups_under_way, call_site site) {
  block::running().current_warpgroup().wait(groups_under_way, site);
}

void check_matrix(uint32_t shared_address, int leading_bytes, int stride_bytes, int swizzle_bytes,
                  call_site site) {
  constexpr int kLimit = 1 << 18;  // 14 bits, of multiples of 16
  const auto fits = [](int bytes) { return bytes >= 0 && bytes < kLimit && bytes % 16 == 0; };
  if (shared_address % 16 != 0) {
    block::running().fail("WGMMA", site, "matrix_descriptor: address 0x%x is not aligned to 16",
                          shared_address);
  }
  if (!fits(leading_bytes) || !fits(stride_bytes)) {
    block::running().fail("WGMMA", site,
                          "matrix_descriptor: leading and stride bytes must be multiples of 16 "
                          "below %d, got %d and %d",
                          kLimit, leading_bytes, stride_bytes);
  }
  if (swizzle_bytes != 0 && swizzle_bytes != 32 && swizzle_bytes != 64 && swizzle_bytes != 128) {
    block::running().fail("WGMMA", site,
                          "matrix_descriptor: swizzle bytes must be 0, 32, 64 or 128, got %d",
                          swizzle_bytes);
  }
}

}  // namespace kittens::sim
