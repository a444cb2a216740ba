#include "sim/tensor_box.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "sim/numbers.hpp"

namespace kittens::sim {
namespace {

template <class Element, class Add>
void add_each(uint8_t* to, const uint8_t* from, int64_t bytes, Add&& add) {
  for (int64_t i = 0; i < bytes; i += sizeof(Element)) {
    Element a, b;
    std::memcpy(&a, to + i, sizeof a);
    std::memcpy(&b, from + i, sizeof b);
    a = add(a, b);
    std::memcpy(to + i, &a, sizeof a);
  }
}

}  // namespace

int64_t tensor_box::rows() const {
  int64_t count = 1;
  for (int d = 1; d < map.rank; ++d) count *= map.box[d];
  return count;
}

tensor_box::row tensor_box::row_at(int64_t index) const {
  // As the hardware does, modulo 2⁶⁴: tma_sequence_map depends on it.
  auto address = reinterpret_cast<uint64_t>(map.data);
  for (int d = 1; d < map.rank; ++d) {
    const int64_t at = corner.at[d] + index % map.box[d];
    index /= map.box[d];
    if (at < 0 || at >= map.extent[d]) return {};
    address += static_cast<uint64_t>(at) * static_cast<uint64_t>(map.stride_bytes[d - 1]);
  }
  auto* const start = reinterpret_cast<uint8_t*>(address);
  const int64_t element = host::bytes_of(map.kind), left = corner.at[0];
  const int64_t first = std::max<int64_t>(left, 0);
  const int64_t end = std::min<int64_t>(left + map.box[0], map.extent[0]);
  if (first >= end) return {};
  return {start + first * element, (first - left) * element, (end - first) * element};
}

tensor_box::row tensor_box::stored_row_at(int64_t index) const {
  row r = row_at(index);
  r.bytes = (r.bytes + kPieceBytes - 1) / kPieceBytes * kPieceBytes;
  return r;
}

// Shared memory starts at a multiple of 1024 bytes, in the simulator as in the shared window, so
// that the swizzle can take the low bits of a host address for those of the device.
void tensor_box::scatter(uint8_t* shared, int64_t index, const uint8_t* packed) const {
  const auto start = reinterpret_cast<intptr_t>(shared) + index * pitch();
  for (int64_t i = 0; i < row_bytes(); i += kPieceBytes) {
    const intptr_t place = swizzled(start + i, map.swizzle_bytes);
    std::memcpy(reinterpret_cast<uint8_t*>(place), packed + i, kPieceBytes);
  }
}

void tensor_box::gather(const uint8_t* shared, int64_t index, uint8_t* packed) const {
  const auto start = reinterpret_cast<intptr_t>(shared) + index * pitch();
  for (int64_t i = 0; i < row_bytes(); i += kPieceBytes) {
    const intptr_t place = swizzled(start + i, map.swizzle_bytes);
    std::memcpy(packed + i, reinterpret_cast<const uint8_t*>(place), kPieceBytes);
  }
}

void add_elements(host::dtype kind, uint8_t* to, const uint8_t* from, int64_t bytes) {
  static auto* const mutex = new std::mutex;  // blocks on several cores add to the same tensor
  const std::lock_guard lock(*mutex);
  switch (kind) {
    case host::dtype::float32:
      return add_each<float>(to, from, bytes, [](float a, float b) { return a + b; });
    case host::dtype::float16:
      return add_each<uint16_t>(to, from, bytes, [](uint16_t a, uint16_t b) {
        return half_from_float(float_from_half(a) + float_from_half(b));
      });
    case host::dtype::bfloat16:
      return add_each<uint16_t>(to, from, bytes, [](uint16_t a, uint16_t b) {
        return bf16_from_float(float_from_bf16(a) + float_from_bf16(b));
      });
  }
}

}  // namespace kittens::sim
