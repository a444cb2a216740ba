#include "sim/race/clock.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

namespace kittens::sim::race {
namespace {

using eight_times [[gnu::vector_size(32)]] = uint32_t;

inline void load(eight_times& to, const uint32_t* from) { std::memcpy(&to, from, sizeof to); }

bool any(const eight_times& mask) {
  uint64_t words[4];
  std::memcpy(words, &mask, sizeof words);
  return (words[0] | words[1] | words[2] | words[3]) != 0;
}

// to = max(to, from). Returns whether the first was at least the second all along, and vice versa.
std::pair<bool, bool> take_larger(uint32_t* to, const uint32_t* from, size_t count) {
  eight_times less{}, more{};
  for (size_t i = 0; i < count; i += 8) {
    eight_times a, b;
    load(a, to + i);
    load(b, from + i);
    const auto is_less = reinterpret_cast<eight_times>(a < b);
    less |= is_less;
    more |= reinterpret_cast<eight_times>(a > b);
    a = (a & ~is_less) | (b & is_less);
    std::memcpy(to + i, &a, sizeof a);
  }
  return {!any(less), !any(more)};
}

// What joins have given, by the contents that went in: the threads that meet ask for the same.
struct joined {
  uint64_t a = 0, b = 0;
  clock result;
};

joined& remembered(uint64_t a, uint64_t b) {
  constexpr size_t kPlaces = 64;
  using table = std::array<joined, kPlaces>;
  // On the heap: a library that is loaded late gets little thread-local memory.
  thread_local const auto places = std::make_unique<table>();
  return (*places)[(a * 0x9e3779b97f4a7c15u ^ b) % kPlaces];
}

}  // namespace

uint64_t clock::new_contents() {
  thread_local uint64_t last = 0;
  return ++last;
}

void clock::own(size_t actors) {
  const size_t size = (actors + kLanes - 1) / kLanes * kLanes;
  if (table_ == nullptr) {
    table_ = new table;
  } else if (table_->references > 1) {
    --table_->references;
    table_ = new table{1, 0, table_->times};
  }
  table_->contents = new_contents();
  if (table_->times.size() < size) table_->times.resize(size);
}

void clock::raise(int actor, uint32_t time) {
  if (at(actor) >= time) return;
  own(actor + 1);
  table_->times[actor] = time;
}

void clock::join(const clock& other) {
  if (other.table_ == nullptr || contents() == other.contents()) return;
  if (table_ == nullptr) {
    *this = other;
    return;
  }
  joined& known = remembered(contents(), other.contents());
  if (known.a == contents() && known.b == other.contents()) {
    *this = known.result;
    return;
  }
  const clock before = *this;
  const size_t mine = table_->times.size(), theirs = other.table_->times.size();
  own(std::max(mine, theirs));
  const auto [has_all, is_part] =
      take_larger(table_->times.data(), other.table_->times.data(), theirs);
  const auto rest = table_->times.begin() + static_cast<int64_t>(std::min(theirs, mine));
  const bool adds_nothing =
      std::all_of(rest, table_->times.end(), [](uint32_t t) { return t == 0; });
  if (has_all && theirs <= mine) {
    *this = before;
  } else if (is_part && (theirs >= mine || adds_nothing)) {
    *this = other;
  }
  known = {before.contents(), other.contents(), *this};
}

bool clock::includes(const clock& other) const {
  if (contents() == other.contents() || other.table_ == nullptr) return true;
  for (size_t i = 0; i < other.table_->times.size(); ++i) {
    if (other.table_->times[i] > at(static_cast<int>(i))) return false;
  }
  return true;
}

void clock::meet(const clock& other) {
  if (table_ == nullptr || contents() == other.contents()) return;
  own(table_->times.size());
  for (size_t i = 0; i < table_->times.size(); ++i) {
    table_->times[i] = std::min(table_->times[i], other.at(static_cast<int>(i)));
  }
}

void gathering::add(const history& known, int actor, uint32_t now, uint32_t fenced_now) {
  if (known.seen.contents() != last_seen_) sum_.seen.join(known.seen);
  if (known.fenced.contents() != last_fenced_) sum_.fenced.join(known.fenced);
  if (known.ended.contents() != last_ended_) sum_.ended.join(known.ended);
  last_seen_ = known.seen.contents();
  last_fenced_ = known.fenced.contents();
  last_ended_ = known.ended.contents();
  sum_.seen.raise(actor, now);
  if (fenced_now > 0) sum_.fenced.raise(actor, fenced_now);
}

}  // namespace kittens::sim::race
