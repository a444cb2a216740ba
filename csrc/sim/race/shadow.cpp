#include "sim/race/shadow.hpp"

#include <algorithm>

namespace kittens::sim::race {

// A fence ends its thread's time, so one at `when` or later is behind the access of that time.
bool access::is_behind_own_fence(int other, uint32_t when) const {
  if (other >= static_cast<int>(fences->size())) return true;
  const std::vector<uint32_t>& times = (*fences)[other];
  const auto first = std::lower_bound(times.begin(), times.end(), when);
  return first != times.end() && *first < ended_of(other);
}

void shadow::touch(int64_t offset, int64_t bytes, const access& a, fault_sink& sink) {
  for (const int64_t end = offset + bytes; offset < end;) {
    const int from = static_cast<int>(offset % kPiece);
    const int count = static_cast<int>(std::min<int64_t>(kPiece - from, end - offset));
    touch(pieces_[offset / kPiece], kPiece, from, count, offset - from, a, sink);
    offset += count;
  }
}

// `from` and `count`: the bytes of the cell; `offset`: of its first byte.
void shadow::touch(cell& c, int size, int from, int count, int64_t offset, const access& a,
                   fault_sink& sink) {
  if (count == size && !c.is_divided) return touch_whole(c, offset, a, sink);
  if (count == size && a.writes && a.leaves_trace) {
    check_parts(c, size, offset, a, sink);
    unite(c);
    return note_write(c, a);
  }
  if (!c.is_divided) divide(c);
  const int part = size / kParts;
  for (int i = from / part; i * part < from + count; ++i) {
    const int first = std::max(from - i * part, 0);
    const int end = std::min(from + count - i * part, part);
    touch(parts_[c.parts][i], part, first, end - first, offset + i * part, a, sink);
  }
}

void shadow::touch_whole(cell& c, int64_t offset, const access& a, fault_sink& sink) {
  if (!a.writes) {
    if (c.reader == a.actor && c.read_time == a.time) return;  // again
    check_write(c, offset, a, sink);
    if (a.leaves_trace) note_read(c, a);
  } else {
    if (c.writer == a.actor && c.write_time == a.time && c.reader == kNobody) return;
    check_write(c, offset, a, sink);
    check_readers(c, offset, a, sink);
    if (a.leaves_trace) note_write(c, a);
  }
}

void shadow::check_parts(const cell& c, int size, int64_t offset, const access& a,
                         fault_sink& sink) {
  if (c.is_divided) {
    const int part = size / kParts;
    for (int i = 0; i < kParts; ++i) {
      check_parts(parts_[c.parts][i], part, offset + i * part, a, sink);
    }
  } else {
    check_write(c, offset, a, sink);
    check_readers(c, offset, a, sink);
  }
}

void shadow::check_write(const cell& c, int64_t offset, const access& a, fault_sink& sink) const {
  if (c.writer == kNobody) {
    if (!a.writes) sink.found(fault::unwritten, a, {}, offset);
    return;
  }
  if (a.is_atomic && c.is_atomic) return;
  const deed write{c.writer, c.write_time, c.write_site, true};
  // To overwrite what a copy has brought, it is enough that the copy has ended.
  const bool is_ordered = a.writes && c.by_proxy ? a.is_behind_end(c.writer, c.write_time)
                                                 : a.is_behind(c.writer, c.write_time);
  if (!is_ordered) {
    sink.found(fault::unordered, a, write, offset);
  } else if (a.by_proxy && !c.by_proxy && !a.is_fenced_from(c.writer, c.write_time)) {
    sink.found(fault::no_fence, a, write, offset);
  }
}

void shadow::check_readers(const cell& c, int64_t offset, const access& a, fault_sink& sink) const {
  const auto check = [&](int actor, uint32_t time, uint32_t site) {
    const deed read{actor, time, site, false};
    if (!a.is_behind_end(actor, time)) {
      sink.found(fault::unordered, a, read, offset);
    } else if (a.by_proxy && !a.is_behind_own_fence(actor, time)) {
      sink.found(fault::no_fence, a, read, offset);
    }
  };
  if (c.reader == kMany) {
    for (const reader& r : readers_[c.read_time]) check(r.actor, r.time, r.site);
  } else if (c.reader != kNobody) {
    check(c.reader, c.read_time, c.read_site);
  }
}

// Of an actor's reads the last one stands for all: who is behind it, or behind a fence after it, is
// behind those before. So does one that is behind another actor's read and the fence after that.
void shadow::note_read(cell& c, const access& a) {
  if (a.is_atomic) return;  // later atomic writes are no conflict
  if (c.reader == kMany) {
    readers& all = readers_[c.read_time];
    const auto at = std::lower_bound(all.begin(), all.end(), a.actor,
                                     [](const reader& r, int actor) { return r.actor < actor; });
    if (at != all.end() && at->actor == a.actor) {
      *at = {a.actor, a.time, a.site};
    } else {
      all.insert(at, {a.actor, a.time, a.site});
    }
  } else if (c.reader == kNobody || c.reader == a.actor ||
             (a.is_behind(c.reader, c.read_time) && a.is_behind_own_fence(c.reader, c.read_time))) {
    c.reader = static_cast<uint16_t>(a.actor);
    c.read_time = a.time;
    c.read_site = a.site;
  } else {
    reader first{c.reader, c.read_time, c.read_site}, second{a.actor, a.time, a.site};
    if (second.actor < first.actor) std::swap(first, second);
    c.read_time = new_readers({first, second});
    c.reader = kMany;
  }
}

void shadow::note_write(cell& c, const access& a) {
  if (c.reader == kMany) unite(c);
  c.writer = static_cast<uint16_t>(a.actor);
  c.write_time = a.time;
  c.write_site = a.site;
  c.by_proxy = a.by_proxy;
  c.is_atomic = a.is_atomic;
  c.reader = kNobody;
}

void shadow::divide(cell& c) {
  if (free_parts_.empty()) {
    free_parts_.push_back(static_cast<uint32_t>(parts_.size()));
    parts_.emplace_back();
  }
  const uint32_t number = free_parts_.back();
  free_parts_.pop_back();
  for (cell& part : parts_[number]) {
    part = c;
    if (c.reader == kMany) part.read_time = new_readers(readers_[c.read_time]);
  }
  unite(c);
  c.is_divided = true;
  c.parts = number;
}

void shadow::unite(cell& c) {
  if (c.is_divided) {
    for (cell& part : parts_[c.parts]) unite(part);
    free_parts_.push_back(c.parts);
    c.is_divided = false;
  }
  if (c.reader == kMany) {
    readers_[c.read_time].clear();
    free_readers_.push_back(c.read_time);
  }
  c.reader = kNobody;
}

uint32_t shadow::new_readers(readers content) {
  if (free_readers_.empty()) {
    free_readers_.push_back(static_cast<uint32_t>(readers_.size()));
    readers_.emplace_back();
  }
  const uint32_t number = free_readers_.back();
  free_readers_.pop_back();
  readers_[number] = std::move(content);
  return number;
}

}  // namespace kittens::sim::race
