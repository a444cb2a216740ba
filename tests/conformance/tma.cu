// arch/tma.cuh: boxes of tensors of 1 to 5 dimensions, both ways and added, every swizzle, outside
// of the tensor on all sides, to several blocks; and plain bytes.
#include <limits>

#include "kittens/arch/arch.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/tensor_map.cuh"
#include "record.h"
#include "tensor_copies.h"

using namespace kittens;
using namespace kittens::testing;
using host::dtype;

namespace {

// All bytes of shared memory, after the box of a tensor of random bytes has been loaded.
void record_load(const std::string& name, const box_case& b) {
  const buffer<uint8_t> in(b.random_bytes(b.tensor_bytes())), out(b.shared_bytes());
  const arch::tensor_map map = host::encode_tensor_map(b.request(in.data()));
  host::dispatch<1, 2, 3, 4, 5>("rank", b.rank, [&]<int Rank> {
    run(loads<Rank>, launch_of(b), map, corner_of(b), b.box_bytes(), out.data(), b.shared_bytes());
  });
  record("tma_load." + name, out.get());
}

// All bytes of a tensor of random bytes, after a box of random bytes has been stored to it.
void record_store(const std::string& name, const box_case& b) {
  const buffer<uint8_t> tensor(b.random_bytes(b.tensor_bytes()));
  const buffer<uint8_t> in(b.random_bytes(b.shared_bytes()));
  const arch::tensor_map map = host::encode_tensor_map(b.request(tensor.data()));
  host::dispatch<1, 2, 3, 4, 5>("rank", b.rank, [&]<int Rank> {
    run(stores<Rank, false>, launch_of(b), map, corner_of(b), b.shared_bytes(), in.data());
  });
  record("tma_store." + name, tensor.get());
}

template <class T>
void record_add(const std::string& name, const box_case& b, const std::vector<float>& before,
                const std::vector<float>& added) {
  const buffer<T> tensor(narrow<T>(before)), in(narrow<T>(added));
  const arch::tensor_map map = host::encode_tensor_map(b.request(tensor.data()));
  host::dispatch<1, 2, 3, 4, 5>("rank", b.rank, [&]<int Rank> {
    run(stores<Rank, true>, launch_of(b), map, corner_of(b), b.shared_bytes(),
        reinterpret_cast<const uint8_t*>(in.data()));
  });
  record("tma_store_add." + name, tensor.get(), same_values());
}

// The boxes that are copied in each number of dimensions.
std::vector<box_case> boxes() {
  return {
      {.rank = 1, .extent = {100}, .box = {32}, .corner = {8}},
      {.rank = 2, .extent = {64, 20}, .box = {32, 8}, .corner = {16, 5}},
      {.rank = 3, .extent = {40, 9, 5}, .box = {24, 4, 2}, .corner = {8, 3, 1}},
      {.rank = 4, .extent = {32, 6, 5, 3}, .box = {16, 3, 2, 2}, .corner = {8, 1, 2}},
      {.rank = 5, .extent = {24, 4, 3, 5, 3}, .box = {16, 2, 3, 2, 2}, .corner = {8, 1, 0, 2, 1}},
  };
}

struct named_dtype {
  dtype kind;
  const char* name;
};
constexpr named_dtype kTypes[] = {
    {dtype::bfloat16, "bf16"}, {dtype::float16, "half"}, {dtype::float32, "float"}};

TEST(dimensions) {
  for (box_case b : boxes()) {
    for (const auto& [kind, type] : kTypes) {
      b.kind = kind;
      const std::string name = to_text(b.rank) + "d." + type;
      record_load(name, b);
      record_store(name, b);
    }
  }
}

TEST(swizzles) {
  for (const int swizzle : {0, 32, 64, 128}) {
    for (const auto& [kind, type] : kTypes) {
      const int cols = (swizzle == 0 ? 48 : swizzle) / static_cast<int>(host::bytes_of(kind));
      const box_case flat{.kind = kind,
                          .rank = 2,
                          .extent = {2 * cols, 64},
                          .box = {cols, 40},
                          .corner = {cols, 3},
                          .swizzle = swizzle};
      const box_case deep{.kind = kind,
                          .rank = 4,
                          .extent = {cols, 11, 3, 4},
                          .box = {cols, 5, 2, 3},
                          .corner = {0, 2, 1, 1},
                          .swizzle = swizzle};
      const std::string name = std::string(type) + ".swizzle_" + to_text(swizzle);
      record_load("2d." + name, flat);
      record_store("2d." + name, flat);
      record_load("4d." + name, deep);
      record_store("4d." + name, deep);
    }
  }
}

TEST(rows_narrower_than_the_swizzle) {
  for (const int swizzle : {32, 64, 128}) {
    for (int cols = 8; cols < swizzle / 2; cols += 8) {
      const box_case b{
          .rank = 2, .extent = {64, 40}, .box = {cols, 24}, .corner = {8, 7}, .swizzle = swizzle};
      const std::string name = "narrow.swizzle_" + to_text(swizzle) + ".cols_" + to_text(cols);
      record_load(name, b);
      record_store(name, b);
    }
  }
}

TEST(outside_of_the_tensor) {
  for (const int c0 : {-64, -56, -8, 0, 8, 56, 64, 304}) {
    for (const int c1 : {-100, -16, -1, 0, 9, 23, 24}) {
      for (const int swizzle : {0, 128}) {
        const box_case b{
            .rank = 2, .extent = {64, 24}, .box = {64, 16}, .corner = {c0, c1}, .swizzle = swizzle};
        const std::string name =
            "outside.at_" + to_text(c0) + "_" + to_text(c1) + ".swizzle_" + to_text(swizzle);
        record_load(name, b);
        if (c0 >= 0 && c1 >= 0) record_store(name, b);
      }
    }
  }
  for (const int c : {-16, -8, 8, 16}) {  // and in each of the outer dimensions
    for (int d = 0; d < 5; ++d) {
      box_case b{.rank = 5, .extent = {16, 4, 4, 4, 4}, .box = {8, 3, 3, 3, 3}, .swizzle = 32};
      b.corner[d] = d == 0 ? c : c / 8;
      const std::string name = "outside.dimension_" + to_text(d) + ".at_" + to_text(b.corner[d]);
      record_load(name, b);
      if (c >= 0) record_store(name, b);
    }
  }
}

TEST(strides_and_odd_extents) {
  for (const int cols : {1, 7, 13, 41}) {  // the tensor ends within a piece of 16 bytes
    box_case b{.rank = 2, .extent = {cols, 6}, .box = {32, 8}, .swizzle = 64};
    b.row_padding = 64 * 2 - cols * 2;  // rows start at multiples of 128 bytes all the same
    record_load("odd.cols_" + to_text(cols), b);
    record_store("odd.cols_" + to_text(cols), b);
  }
  box_case b{.rank = 3, .extent = {16, 5, 4}, .box = {16, 4, 3}, .corner = {0, 1, 1}};
  for (const int padding : {16, 48, 4096}) {
    b.row_padding = padding;
    record_load("padded." + to_text(padding), b);
    record_store("padded." + to_text(padding), b);
  }
}

// Sums that are exact, and sums that are rounded.
template <class T>
void record_adds() {
  for (box_case b : boxes()) {
    b.kind = host::dtype_of<T>;
    std::vector<float> before(b.tensor_bytes() / sizeof(T)), added(b.shared_bytes() / sizeof(T));
    for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(i % 100) - 50;
    for (size_t i = 0; i < added.size(); ++i) added[i] = static_cast<float>(i % 23) * 0.375f - 4;
    record_add<T>(to_text(b.rank) + "d." + recorded_type<T>, b, before, added);
  }
  for (const int swizzle : {32, 64, 128}) {
    const int cols = swizzle / static_cast<int>(sizeof(T));
    const box_case b{.kind = host::dtype_of<T>,
                     .rank = 2,
                     .extent = {2 * cols, 12},
                     .box = {cols, 8},
                     .corner = {cols, 7},
                     .swizzle = swizzle};
    const int count = static_cast<int>(b.tensor_bytes() / sizeof(T));
    record_add<T>(std::string("2d.") + recorded_type<T> + ".swizzle_" + to_text(swizzle), b,
                  random_values(count, 3), random_values(8 * cols, 4));
  }
}

// Numbers at the edges of the format; sums half way between two numbers; subnormal numbers.
template <class T>
void record_special_adds(float largest, float tiny, float half_step) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const box_case b{.kind = host::dtype_of<T>, .rank = 1, .extent = {8}, .box = {8}};
  const std::string type = recorded_type<T>;
  record_add<T>("special." + type, b, {infinity, infinity, nan, 1, largest, largest, -0.0f, -0.0f},
                {1, -infinity, 1, nan, largest, 1, -0.0f, 0});
  record_add<T>("halfway." + type, b, {1, 1 + 2 * half_step, 1, -1, -1, 1, 2, 0},
                {half_step, half_step, 1.5f * half_step, -half_step, half_step, -half_step,
                 2 * half_step, half_step});
  record_add<T>("subnormal." + type, b, {tiny, tiny, -tiny, tiny, 0, 4 * tiny, tiny, -tiny},
                {tiny, -tiny, 0, 1, -tiny, -tiny, 0, -0.0f});
}

TEST(adds) {
  record_adds<float>();
  record_adds<__half>();
  record_adds<__nv_bfloat16>();
  record_special_adds<float>(std::numeric_limits<float>::max(), 0x1p-149f, 0x1p-24f);
  record_special_adds<__half>(65504, 0x1p-24f, 0x1p-11f);
  record_special_adds<__nv_bfloat16>(0x1.fep127f, 0x1p-133f, 0x1p-8f);
}

// ---- to several blocks

// Block 1 loads a box for the blocks of a mask; a second box goes to all blocks, a part from each.
__global__ void multicasts(const __grid_constant__ arch::tensor_map map, uint16_t* out,
                           uint16_t blocks) {
  auto* full = reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared());
  auto* box = reinterpret_cast<uint16_t*>(arch::dynamic_shared() + kBoxOffset);
  constexpr int kBox = 64 * 8;
  const int i = arch::thread_id(), rank = arch::cluster_rank(), n = arch::cluster_blocks();
  for (int k = i; k < 5 * kBox; k += kThreads) box[k] = 7;
  if (i == 0) {
    arch::mbarrier_init(full, 1);
    arch::mbarrier_init(full + 1, 1);
    arch::fence_mbarrier_init();
  }
  arch::fence_async_proxy();
  arch::cluster_sync();
  const bool gets = (blocks >> rank & 1) != 0;
  if (i == 0) {
    if (gets) arch::mbarrier_arrive_expect_bytes(full, 2 * kBox);
    if (rank == 1) arch::tma_load_multicast(box, &map, full, blocks, 0, 3);
    arch::mbarrier_arrive_expect_bytes(full + 1, n * 2 * kBox);
    arch::tma_load_multicast(box + (1 + rank) * kBox, &map, full + 1,
                             static_cast<uint16_t>((1 << n) - 1), 0, 8 * rank - 4);
  }
  arch::sync_block();
  if (gets) arch::mbarrier_wait(full, 0);
  arch::mbarrier_wait(full + 1, 0);
  for (int k = i; k < 5 * kBox; k += kThreads) out[arch::block_x() * 5 * kBox + k] = box[k];
  arch::cluster_sync();
}

TEST(multicast) {
  std::vector<uint16_t> values(64 * 32);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(100 + i);
  const buffer<uint16_t> in(values);
  const arch::tensor_map map = host::encode_tensor_map({.data = in.data(),
                                                        .kind = dtype::float16,
                                                        .rank = 2,
                                                        .extent = {64, 32},
                                                        .stride_bytes = {128},
                                                        .box = {64, 8},
                                                        .swizzle_bytes = 128});
  for (const int blocks : {0b0010, 0b1101, 0b1000, 0b1111}) {
    const buffer<uint16_t> out(4 * 5 * 64 * 8);
    run(multicasts,
        {.grid = {4}, .block = {kThreads}, .shared_bytes = kBoxOffset + 5 * 1024, .cluster = 4},
        map, out.data(), static_cast<uint16_t>(blocks));
    record("tma_load_multicast.to_" + to_text(blocks), out.get());
  }
}

// ---- plain bytes

// Two stores in groups of their own; the source of the first is written again in between.
__global__ void bulk_copies(const uint4* in, uint4* out, int bytes) {
  auto* full = reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared());
  auto* here = reinterpret_cast<uint4*>(arch::dynamic_shared() + 16);
  const int i = arch::thread_id(), pieces = bytes / 16;
  if (i == 0) {
    arch::mbarrier_init(full, 1);
    arch::fence_mbarrier_init();
    arch::bulk_load(here, in, bytes, full);
    arch::mbarrier_arrive_expect_bytes(full, bytes);  // the bytes may come first
  }
  arch::sync_block();
  arch::mbarrier_wait(full, 0);
  for (int round = 0; round < 2; ++round) {
    for (int k = i; k < pieces; k += kThreads) here[k].x += 1;
    arch::fence_async_proxy();
    arch::sync_block();
    if (i == 0) {
      arch::bulk_store(out + round * pieces, here, bytes);
      arch::bulk_commit();
      arch::bulk_wait_read<0>();
    }
    arch::sync_block();
  }
  if (i == 0) {
    arch::bulk_wait<1>();
    arch::bulk_wait<0>();
  }
}

TEST(bulk) {
  for (const int pieces : {1, 5, 1000}) {
    std::vector<uint32_t> values(4 * pieces);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint32_t>(i * 2654435761u);
    const buffer<uint32_t> in(values), out(2 * values.size());
    run(bulk_copies, {.grid = {1}, .block = {kThreads}, .shared_bytes = 16 + 16 * pieces},
        reinterpret_cast<const uint4*>(in.data()), reinterpret_cast<uint4*>(out.data()),
        16 * pieces);
    record("bulk.bytes_" + to_text(16 * pieces), out.get());
  }
}

}  // namespace
