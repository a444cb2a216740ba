#include "sim/race/report.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "sim/cluster.hpp"
#include "sim/race/advice.hpp"
#include "sim/report.hpp"

namespace kittens::sim::race {
namespace {

const actor kNobody;
const site kNowhere;

// One finding, and its places as text.
struct told {
  finding what;
  std::string earlier_place, later_place;
};

// Without the line of the library that it came through.
std::string in_kernel(const std::string& place) { return place.substr(0, place.find(' ')); }

class teller {
 public:
  teller(const report_context& in, const symbols& known) : in_(in), known_(known) {}

  std::string place_of(const deed& d) const {
    return d.actor < 0 ? "" : kernel_line(known_, in_.places[d.site].pc);
  }

  std::string tell(const told& t) const {
    const finding& f = t.what;
    const side later = side_of(f.later), earlier = side_of(f.earlier);
    const std::string text = headline(f) + " at " + t.later_place + ": " + sentence(t, later);
    return text + "\n  missing: " + advice(f, earlier, later);
  }

  // What tells findings apart, in the order of their importance: of a copy over another one, the
  // cause is rather to be seen where what it brought was used.
  auto key_of(const told& t) const {
    const side later = side_of(t.what.later), earlier = side_of(t.what.earlier);
    const bool is_refill = earlier.by.kind == actor_kind::load && later.by.kind == actor_kind::load;
    return std::make_tuple(is_refill, t.what.kind, in_kernel(t.later_place),
                           in_kernel(t.earlier_place), std::string(later.where.name),
                           std::string(earlier.where.name), t.what.later.wrote);
  }

 private:
  side side_of(const deed& d) const {
    if (d.actor < 0) return {kNobody, kNowhere};
    return {in_.actors[d.actor], in_.places[d.site]};
  }

  static std::string headline(const finding& f) {
    switch (f.kind) {
      case finding_kind::no_fence: return "PROXY FENCE";
      case finding_kind::unwritten: return "UNINITIALISED";
      case finding_kind::exit: return "CLUSTER";
      default: return "RACE";
    }
  }

  std::string threads_of(const std::set<int>& actors) const {
    std::set<std::pair<int, int>> all;  // rank, thread
    for (const int number : actors) {
      if (number < 0) continue;
      const actor& a = in_.actors[number];
      for (int i = 0; i < a.count; ++i) all.emplace(a.asker_rank, a.first + i);
    }
    std::string text;
    for (int rank = 0; rank < in_.cluster_blocks; ++rank) {
      std::vector<int> numbers;
      for (const auto& [r, number] : all) {
        if (r == rank) numbers.push_back(number);
      }
      if (numbers.empty()) continue;
      text += (text.empty() ? "" : " and ") +
              std::string(numbers.size() == 1 ? "thread " : "threads ") + describe_ranges(numbers);
      if (in_.cluster_blocks > 1) text += " of rank " + std::to_string(rank);
    }
    return text;
  }

  // Of threads that do the same at the same line, who came first is of no interest.
  bool is_with_itself(const told& t) const {
    const side later = side_of(t.what.later), earlier = side_of(t.what.earlier);
    return t.what.kind == finding_kind::unordered && t.earlier_place == t.later_place &&
           later.by.kind == actor_kind::thread && earlier.by.kind == actor_kind::thread &&
           t.what.earlier.wrote == t.what.later.wrote;
  }

  // `tma_store by thread 128 reads`, `threads 0-31 write`.
  std::string who_does(const deed& d, const std::set<int>& actors) const {
    const side s = side_of(d);
    const bool is_use = !d.wrote && std::string_view(s.where.name).starts_with("mbarrier");
    const std::string who = threads_of(actors), verb = d.wrote ? "write" : is_use ? "use" : "read";
    if (s.where.name[0] != '\0') return std::string(s.where.name) + " by " + who + " " + verb + "s";
    return who + " " + verb + (who.starts_with("thread ") ? "s" : "");
  }

  std::string memory_of(const finding& f) const {
    std::string text = "shared memory at offset " + std::to_string(f.offset);
    if (in_.cluster_blocks > 1) text += " of rank " + std::to_string(f.rank);
    return text;
  }

  std::string sentence(const told& t, const side& later) const {
    const finding& f = t.what;
    std::set<int> later_actors = f.later_actors;
    if (is_with_itself(t)) later_actors.insert(f.earlier_actors.begin(), f.earlier_actors.end());
    const std::string does = who_does(f.later, later_actors);
    const std::string did = who_does(f.earlier, f.earlier_actors);
    switch (f.kind) {
      case finding_kind::accumulator:
        return does + " accumulator " + std::to_string(f.offset) +
               ", which the product asked for at " + t.earlier_place + " still has";
      case finding_kind::exit:
        return std::string(later.where.name[0] != '\0' ? later.where.name : "an access") + " by " +
               threads_of(f.later_actors) + " uses shared memory of rank " +
               std::to_string(f.rank) + ", whose threads may all have exited before";
      case finding_kind::unwritten: return does + " " + memory_of(f) + ", which nobody has written";
      case finding_kind::no_fence:
        return does + " " + memory_of(f) + "; " + did + " it at " + t.earlier_place +
               " before, by ordinary " + (f.earlier.wrote ? "stores" : "loads") +
               ", and there is no proxy fence " +
               (f.earlier.wrote ? "in between" : "of their own in between");
      case finding_kind::unordered: break;
    }
    if (is_with_itself(t)) return does + " " + memory_of(f) + ", and nothing orders them";
    return does + " " + memory_of(f) + "; " + did + " it at " + t.earlier_place +
           ", and nothing orders the two";
  }

  const report_context& in_;
  const symbols& known_;
};

// Sorts them, and makes one of those that only differ in lines of the library.
void unite_same(std::vector<told>& all, const teller& words) {
  std::sort(all.begin(), all.end(), [&](const told& a, const told& b) {
    return std::make_tuple(words.key_of(a), a.what.offset, a.later_place, a.earlier_place) <
           std::make_tuple(words.key_of(b), b.what.offset, b.later_place, b.earlier_place);
  });
  std::vector<told> united;
  for (told& t : all) {
    if (united.empty() || words.key_of(united.back()) != words.key_of(t)) {
      united.push_back(std::move(t));
    } else {
      united.back().what.earlier_actors.merge(t.what.earlier_actors);
      united.back().what.later_actors.merge(t.what.later_actors);
    }
  }
  all = std::move(united);
}

}  // namespace

std::string compose(const std::vector<const finding*>& findings, const report_context& in) {
  constexpr size_t kMostTold = 4;
  symbols known;
  for (const finding* f : findings) {
    for (const deed* d : {&f->earlier, &f->later}) {
      if (d->actor >= 0) known.add(in.places[d->site].pc);
    }
  }
  known.resolve();
  const teller words(in, known);
  std::vector<told> all;
  for (const finding* f : findings) {
    all.push_back({*f, words.place_of(f->earlier), words.place_of(f->later)});
  }
  unite_same(all, words);
  std::string text;
  for (size_t i = 0; i < all.size() && i < kMostTold; ++i) {
    text += (i == 0 ? "" : "\n") + words.tell(all[i]);
  }
  if (all.size() > kMostTold) {
    text += "\n… and " + std::to_string(all.size() - kMostTold) + " more";
  }
  return text;
}

std::string detector::report() {
  if (cluster_.threads().alive() == 0) check_exits();
  // What is read before a write that nothing orders is unwritten by chance only.
  std::set<uint32_t> unordered;
  for (const auto& [k, f] : findings_) {
    if (f.kind == finding_kind::unordered) unordered.insert({f.earlier.site, f.later.site});
  }
  std::vector<const finding*> all;
  for (const auto& [k, f] : findings_) {
    if (f.kind != finding_kind::unwritten || !unordered.contains(f.later.site)) all.push_back(&f);
  }
  return all.empty() ? "" : compose(all, {actors_, places_, cluster_.size()});
}

}  // namespace kittens::sim::race
