// The bulk copies of bulk_api.hpp: what they check, and what they do with bytes.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "sim/block.hpp"
#include "sim/bulk_api.hpp"
#include "sim/bulk_copy.hpp"
#include "sim/facts.hpp"
#include "sim/race/race.hpp"
#include "sim/tensor_box.hpp"

namespace kittens::sim {
namespace {

// PTX ISA, tensor copies: a box has at most 256 elements in a dimension.
using packed_row = std::array<uint8_t, 256 * sizeof(float)>;

constexpr int64_t kBulkAlignment = 16, kBoxAlignment = 128;

bool is_tensor_map(const tensor_map* map) {
  return !is_shared(map) && is_valid_address(map, alignof(tensor_map)) &&
         map->valid == tensor_map::kValid;
}

tensor_box find_box(const char* name, const tensor_map* map, const coordinates& c, call_site site) {
  block& b = block::running();
  if (!is_tensor_map(map)) {
    b.fail("TENSOR MAP", site,
           "%s by thread %d: what is at %p is no tensor map of encode_tensor_map, aligned to %zu "
           "bytes",
           name, self->thread, static_cast<const void*>(map), alignof(tensor_map));
  }
  if (map->in_global_memory && !b.has_fenced(map)) {
    b.fail("TENSOR MAP", site,
           "%s by thread %d: the map is in global memory, and its block has not called "
           "fence_tensor_map: what was there before may be used",
           name, self->thread);
  }
  if (c.count != map->rank) {
    b.fail("TENSOR MAP", site, "%s by thread %d: %d coordinates for a tensor of %d dimensions",
           name, self->thread, c.count, int{map->rank});
  }
  const int64_t first_byte = c.at[0] * host::bytes_of(map->kind);
  if (first_byte % kBulkAlignment != 0) {
    b.fail(
        "TENSOR MAP", site,
        "%s by thread %d: the innermost coordinate must be a multiple of 16 bytes, got %d, which "
        "is %lld bytes",
        name, self->thread, c.at[0], static_cast<long long>(first_byte));
  }
  return {*map, c};
}

void check_place(const char* name, const tensor_box& box, const void* p, call_site site) {
  const int64_t repeat = 8 * int64_t{box.map.swizzle_bytes};
  check_shared_range(name, p, box.rows() * box.pitch(), std::max(repeat, kBoxAlignment), site);
}

void spoil_box(const tensor_box& box, uint8_t* dst) {
  packed_row packed;
  poison(packed.data(), packed.size());
  for (int64_t r = 0; r < box.rows(); ++r) box.scatter(dst, r, packed.data());
}

void fill_box(const tensor_box& box, const copy_origin& from, uint8_t* dst) {
  for (int64_t r = 0; r < box.rows(); ++r) {
    const tensor_box::row inside = box.row_at(r);
    packed_row packed{};  // zeros, where it is outside of the tensor
    if (inside.bytes > 0) {
      from.check_guards(inside.global, inside.bytes);
      std::memcpy(packed.data() + inside.first, inside.global, inside.bytes);
    }
    box.scatter(dst, r, packed.data());
  }
}

// `copies`: how many blocks' shared memory it goes to or comes from.
void count_box(const char* name, const tensor_box& box, int copies, call_site site) {
  if (self->facts == nullptr) return;
  fact f{.shared_bytes = copies * box.bytes()};
  for (int64_t r = 0; r < box.rows(); ++r) f.global_bytes += box.row_at(r).bytes;
  count_work(name, f, site);
}

bool is_constant(const tensor_box& box) {
  if (self->constant.empty()) return false;
  for (int64_t r = 0; r < box.rows(); ++r) {
    const tensor_box::row inside = box.row_at(r);
    if (inside.bytes > 0 && !sim::is_constant(inside.global, inside.bytes)) return false;
  }
  return true;
}

void load_box(const char* name, void* dst, const tensor_map* map, void* full, unsigned blocks,
              const coordinates& c, call_site site) {
  const tensor_box box = find_box(name, map, c, site);
  check_place(name, box, dst, site);
  count_box(name, box, std::popcount(blocks), site);
  std::vector<copy_target> targets = find_targets(name, dst, full, blocks, site);
  start_load(copy_origin::here(name, site, is_constant(box)), std::move(targets), box.bytes(),
             {[box](uint8_t* to) { spoil_box(box, to); },
              [box](const copy_origin& from, uint8_t* to) { fill_box(box, from, to); },
              [box](const uint8_t* at, const auto& f) { box.for_each_piece(at, f); }});
}

void store_box(const char* name, const tensor_map* map, const void* src, bool adds,
               const coordinates& c, call_site site) {
  const tensor_box box = find_box(name, map, c, site);
  check_place(name, box, src, site);
  if (*std::min_element(c.at, c.at + c.count) < 0) {
    block::running().fail(
        "TENSOR MAP", site,
        "%s by thread %d: the coordinates of a store must not be negative, got %d", name,
        self->thread, *std::min_element(c.at, c.at + c.count));
  }
  count_box(name, box, 1, site);
  for (int64_t r = 0; self->race != nullptr && r < box.rows(); ++r) {
    const tensor_box::row inside = box.stored_row_at(r);
    if (inside.bytes > 0) race::write_global(inside.global, inside.bytes);
  }
  const auto* shared = static_cast<const uint8_t*>(src);
  const auto read = [box, shared](uint8_t* packed) {
    for (int64_t r = 0; r < box.rows(); ++r) box.gather(shared, r, packed + r * box.row_bytes());
  };
  const auto write = [box, adds](const copy_origin& from, const uint8_t* packed) {
    for (int64_t r = 0; r < box.rows(); ++r) {
      const tensor_box::row inside = box.stored_row_at(r);
      if (inside.bytes == 0) continue;
      from.check_guards(inside.global, inside.bytes);
      const uint8_t* source = packed + r * box.row_bytes() + inside.first;
      if (adds) {
        add_elements(box.map.kind, inside.global, source, inside.bytes);
      } else {
        std::memcpy(inside.global, source, inside.bytes);
      }
    }
  };
  const auto pieces = [box](const uint8_t* at, const auto& f) { box.for_each_piece(at, f); };
  start_store(copy_origin::here(name, site), shared, box.bytes(), {read, write, pieces});
}

void check_bulk(const char* name, const void* shared, const void* global, int bytes,
                call_site site) {
  if (bytes < 0 || bytes % kBulkAlignment != 0) {
    block::running().fail("BULK COPY", site,
                          "%s by thread %d: bytes must be a multiple of %d, got %d", name,
                          self->thread, static_cast<int>(kBulkAlignment), bytes);
  }
  check_shared_range(name, shared, bytes, kBulkAlignment, site);
  if (is_shared(global) || !is_valid_address(global, kBulkAlignment)) {
    report_access(name, global, kBulkAlignment, site);
  }
  count_work(name, {.shared_bytes = bytes, .global_bytes = bytes}, site);
}

}  // namespace

void tma_load(void* dst, const tensor_map* map, void* full, const coordinates& c, call_site site) {
  KITTENS_RACE_CALL("tma_load", site);
  load_box("tma_load", dst, map, full, 1u << self->cluster_rank, c, site);
}

void tma_load_multicast(void* dst, const tensor_map* map, void* full, uint16_t blocks,
                        const coordinates& c, call_site site) {
  KITTENS_RACE_CALL("tma_load_multicast", site);
  load_box("tma_load_multicast", dst, map, full, blocks, c, site);
}

void tma_store(const tensor_map* map, const void* src, const coordinates& c, call_site site) {
  KITTENS_RACE_CALL("tma_store", site);
  store_box("tma_store", map, src, false, c, site);
}

void tma_store_add(const tensor_map* map, const void* src, const coordinates& c, call_site site) {
  KITTENS_RACE_CALL("tma_store_add", site);
  store_box("tma_store_add", map, src, true, c, site);
}

void tma_prefetch(const tensor_map* map, const coordinates& c, call_site site) {
  find_box("tma_prefetch", map, c, site);
}

void fence_tensor_map(const tensor_map* map) { block::running().fence_tensor_map(map); }

void tma_prefetch_map(const tensor_map* map, call_site site) {
  const int rank = is_tensor_map(map) ? map->rank : 0;
  find_box("tma_prefetch_map", map, {rank, {}}, site);
}

void bulk_load(void* dst, const void* src, int bytes, void* full, call_site site) {
  constexpr const char* kName = "bulk_load";
  KITTENS_RACE_CALL(kName, site);
  check_bulk(kName, dst, src, bytes, site);
  const auto* global = static_cast<const uint8_t*>(src);
  std::vector<copy_target> targets = find_targets(kName, dst, full, 1u << self->cluster_rank, site);
  start_load(copy_origin::here(kName, site, is_constant(src, bytes)), std::move(targets), bytes,
             {[bytes](uint8_t* to) { poison(to, bytes); },
              [global, bytes](const copy_origin& from, uint8_t* to) {
                from.check_guards(global, bytes);
                std::memcpy(to, global, bytes);
              },
              [bytes](const uint8_t* at, const auto& f) { f(at, bytes); }});
}

void bulk_store(void* dst, const void* src, int bytes, call_site site) {
  constexpr const char* kName = "bulk_store";
  KITTENS_RACE_CALL(kName, site);
  check_bulk(kName, src, dst, bytes, site);
  const auto* shared = static_cast<const uint8_t*>(src);
  auto* global = static_cast<uint8_t*>(dst);
  race::write_global(global, bytes);
  const auto read = [shared, bytes](uint8_t* packed) { std::memcpy(packed, shared, bytes); };
  const auto write = [global, bytes](const copy_origin& from, const uint8_t* packed) {
    from.check_guards(global, bytes);
    std::memcpy(global, packed, bytes);
  };
  const auto pieces = [bytes](const uint8_t* at, const auto& f) { f(at, bytes); };
  start_store(copy_origin::here(kName, site), shared, bytes, {read, write, pieces});
}

}  // namespace kittens::sim
