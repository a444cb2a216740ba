// arch/tma.cuh: boxes of tensors of 1 to 5 dimensions, every swizzle, edges on all sides, sums.
#include <string>
#include <thread>

#include "harness.h"
#include "kittens/arch/barrier.cuh"
#include "kittens/arch/fence.cuh"
#include "kittens/arch/thread.cuh"
#include "kittens/arch/tma.cuh"
#include "kittens/host/dispatch.h"
#include "kittens/host/tensor_map.cuh"
#include "tensor_copies.h"

using namespace kittens;
using host::dtype;
using testing::box_case;
using testing::buffer;
using testing::corner_of;
using testing::kBefore;
using testing::kBoxOffset;
using testing::kThreads;
using testing::launch_of;
using testing::loads;
using testing::run;
using testing::stores;

namespace {

// Loads the box of a tensor of random bytes, and compares all bytes of shared memory.
void check_load(const box_case& b) {
  const std::vector<uint8_t> tensor = b.random_bytes(b.tensor_bytes());
  const buffer<uint8_t> in(tensor), out(b.shared_bytes());
  const arch::tensor_map map = host::encode_tensor_map(b.request(in.data()));
  host::dispatch<1, 2, 3, 4, 5>("rank", b.rank, [&]<int Rank> {
    run(loads<Rank>, launch_of(b), map, corner_of(b), b.box_bytes(), out.data(), b.shared_bytes());
  });
  CHECK_EQUAL(testing::first_difference(out.get(), b.in_shared(tensor, kBefore)), -1);
}

// Stores a box of random bytes over a tensor, and compares all bytes of the tensor.
void check_store(const box_case& b) {
  const std::vector<uint8_t> before = b.random_bytes(b.tensor_bytes());
  const std::vector<uint8_t> box = b.random_bytes(b.shared_bytes());
  const buffer<uint8_t> tensor(before), in(box);
  const arch::tensor_map map = host::encode_tensor_map(b.request(tensor.data()));
  host::dispatch<1, 2, 3, 4, 5>("rank", b.rank, [&]<int Rank> {
    run(stores<Rank, false>, launch_of(b), map, corner_of(b), b.shared_bytes(), in.data());
  });
  CHECK_EQUAL(testing::first_difference(tensor.get(), b.after_store(before, box)), -1);
}

TEST(boxes_of_one_to_five_dimensions) {
  for (const box_case& b : {
           box_case{.rank = 1, .extent = {100}, .box = {32}, .corner = {8}},
           box_case{.rank = 2, .extent = {64, 20}, .box = {32, 8}, .corner = {16, 5}},
           box_case{.rank = 3, .extent = {40, 9, 5}, .box = {24, 4, 2}, .corner = {8, 3, 1}},
           box_case{.rank = 4, .extent = {32, 6, 5, 3}, .box = {16, 3, 2, 2}, .corner = {8, 1, 2}},
           box_case{.rank = 5,
                    .extent = {24, 4, 3, 5, 3},
                    .box = {16, 2, 3, 2, 2},
                    .corner = {8, 1, 0, 2, 1}},
       }) {
    for (const dtype kind : {dtype::bfloat16, dtype::float16, dtype::float32}) {
      box_case of_kind = b;
      of_kind.kind = kind;
      check_load(of_kind);
      check_store(of_kind);
    }
  }
}

TEST(every_swizzle) {
  for (const int swizzle : {0, 32, 64, 128}) {
    for (const dtype kind : {dtype::bfloat16, dtype::float32}) {
      const int cols = (swizzle == 0 ? 48 : swizzle) / static_cast<int>(host::bytes_of(kind));
      const box_case flat{.kind = kind,
                          .rank = 2,
                          .extent = {2 * cols, 64},
                          .box = {cols, 40},
                          .corner = {cols, 3},
                          .swizzle = swizzle};
      check_load(flat);
      check_store(flat);
      const box_case deep{.kind = kind,
                          .rank = 4,
                          .extent = {cols, 11, 3, 4},
                          .box = {cols, 5, 2, 3},
                          .corner = {0, 2, 1, 1},
                          .swizzle = swizzle};
      check_load(deep);
      check_store(deep);
    }
  }
}

TEST(rows_narrower_than_the_swizzle) {
  for (const int swizzle : {32, 64, 128}) {
    for (int cols = 8; cols <= swizzle / 2; cols += 8) {
      const box_case b{
          .rank = 2, .extent = {64, 40}, .box = {cols, 24}, .corner = {8, 7}, .swizzle = swizzle};
      check_load(b);
      check_store(b);
    }
  }
}

TEST(outside_is_zero_and_not_stored) {
  for (const int c0 : {-208, -64, -56, -8, 0, 8, 40, 56, 64, 304}) {
    for (const int c1 : {-100, -16, -15, -1, 0, 9, 23, 24, 1000}) {
      for (const int swizzle : {0, 128}) {
        const box_case b{
            .rank = 2, .extent = {64, 24}, .box = {64, 16}, .corner = {c0, c1}, .swizzle = swizzle};
        check_load(b);
        if (c0 >= 0 && c1 >= 0) check_store(b);
      }
    }
  }
  for (const int c : {-16, -8, 8, 16}) {  // and in each of the outer dimensions
    for (int d = 0; d < 5; ++d) {
      box_case b{.rank = 5, .extent = {16, 4, 4, 4, 4}, .box = {8, 3, 3, 3, 3}, .swizzle = 32};
      b.corner[d] = d == 0 ? c : c / 8;
      check_load(b);
      if (c >= 0) check_store(b);
    }
  }
}

TEST(extents_that_end_within_a_piece) {
  for (const int cols : {1, 7, 13, 41}) {
    box_case b{.rank = 2, .extent = {cols, 6}, .box = {32, 8}, .swizzle = 64};
    b.row_padding = 64 * 2 - cols * 2;  // rows start at multiples of 128 bytes all the same
    check_load(b);
    check_store(b);
  }
}

TEST(strides_between_rows) {
  box_case b{.rank = 3, .extent = {16, 5, 4}, .box = {16, 4, 3}, .corner = {0, 1, 1}};
  for (const int padding : {16, 48, 4096}) {
    b.row_padding = padding;
    check_load(b);
    check_store(b);
  }
  b = box_case{
      .rank = 3, .extent = {16, 1, 4}, .box = {16, 1, 4}};  // an extent of 1 has any stride
  b.stride_of_one = 7;
  check_load(b);
  check_store(b);
}

template <class T>
void check_sums() {
  const box_case b{.kind = host::dtype_of<T>,
                   .rank = 3,
                   .extent = {64, 9, 2},
                   .box = {static_cast<int>(64 / sizeof(T)), 8, 2},
                   .corner = {static_cast<int>(64 - 32 / sizeof(T)), 3, 1},
                   .swizzle = 64};
  std::vector<T> before(b.tensor_bytes() / sizeof(T)), added(b.shared_bytes() / sizeof(T));
  for (size_t i = 0; i < before.size(); ++i) before[i] = T(float(i % 100) - 50);
  for (size_t i = 0; i < added.size(); ++i) added[i] = T(float(i % 23) * 0.375f - 4);
  const buffer<T> tensor(before), in(added);
  const arch::tensor_map map = host::encode_tensor_map(b.request(tensor.data()));
  constexpr int kBlocks = 3;  // each adds the same
  run(stores<3, true>,
      {.grid = {kBlocks}, .block = {kThreads}, .shared_bytes = kBoxOffset + b.shared_bytes()}, map,
      corner_of(b), b.shared_bytes(), reinterpret_cast<const uint8_t*>(in.data()));

  // The sums are exact in 8 bits of mantissa or not at all; so each is rounded.
  std::vector<uint8_t> zeros(b.tensor_bytes());
  const auto* bytes = reinterpret_cast<const uint8_t*>(added.data());
  const std::vector<uint8_t> placed = b.after_store(zeros, {bytes, bytes + b.shared_bytes()});
  const std::vector<T> got = tensor.get();
  for (size_t i = 0; i < before.size(); ++i) {
    T addend;
    std::memcpy(&addend, placed.data() + i * sizeof(T), sizeof(T));
    T want = before[i];
    for (int k = 0; k < kBlocks; ++k) want = T(float(want) + float(addend));
    CHECK_EQUAL(float(got[i]), float(want));
  }
}

TEST(sums) {
  check_sums<float>();
  check_sums<__half>();
  check_sums<__nv_bfloat16>();
}

// The source may be written again after bulk_wait_read; the destination is complete after
// bulk_wait.
__global__ void stores_twice(const __grid_constant__ arch::tensor_map map, float* out) {
  auto* box = reinterpret_cast<float*>(arch::dynamic_shared());
  const int i = arch::thread_id();
  for (int round = 0; round < 4; ++round) {
    box[i] = static_cast<float>(100 * round + i);
    arch::fence_async_proxy();
    arch::sync_block();
    if (i == 0) {
      arch::tma_prefetch(&map, 0, round);
      arch::tma_store(&map, box, 0, round);
      arch::bulk_commit();
      arch::bulk_wait_read<0>();
    }
    arch::sync_block();
  }
  if (i != 0) return;
  arch::bulk_wait<0>();
  out[0] = out[3 * kThreads + 63];
}

TEST(a_source_is_used_again) {
  const buffer<float> out(4 * kThreads);
  const arch::tensor_map map = host::encode_tensor_map({.data = out.data(),
                                                        .kind = dtype::float32,
                                                        .rank = 2,
                                                        .extent = {kThreads, 4},
                                                        .stride_bytes = {kThreads * 4},
                                                        .box = {kThreads, 1}});
  run(stores_twice, {.grid = {1}, .block = {kThreads}, .shared_bytes = kThreads * 4}, map,
      out.data());
  const std::vector<float> got = out.get();
  CHECK_EQUAL(got[0], 363.0f);
  for (int i = 1; i < 4 * kThreads; ++i) CHECK_EQUAL(got[i], 100.0f * (i / 64) + i % 64);
}

__global__ void bulk_copies(const uint4* in, uint4* out, int bytes) {
  auto* full = reinterpret_cast<arch::mbarrier*>(arch::dynamic_shared());
  auto* here = reinterpret_cast<uint4*>(arch::dynamic_shared() + 16);
  if (arch::thread_id() == 0) {
    arch::mbarrier_init(full, 1);
    arch::fence_mbarrier_init();
    arch::bulk_load(here, in, bytes, full);
    arch::mbarrier_arrive_expect_bytes(full, bytes);  // the bytes may come first
  }
  arch::sync_block();
  while (!arch::mbarrier_test(full, 0)) {
  }
  for (int i = arch::thread_id(); i < bytes / 16; i += arch::block_threads()) here[i].x += 1;
  arch::fence_async_proxy();
  arch::sync_block();
  if (arch::thread_id() == 0) {
    arch::bulk_store(out, here, bytes);
    arch::bulk_commit();
    arch::bulk_wait_read<0>();
  }
}

// On a GPU it has no context yet.
TEST(a_thread_that_has_done_nothing_before) {
  const box_case b{.rank = 2, .extent = {64, 20}, .box = {32, 8}, .corner = {16, 5}};
  const buffer<uint8_t> tensor(b.random_bytes(b.tensor_bytes()));
  std::string said = "nothing";
  std::thread([&] {
    try {
      host::encode_tensor_map(b.request(tensor.data()));
    } catch (const host::error& e) {
      said = e.what();
    }
  }).join();
  CHECK_EQUAL(said, "nothing");
}

TEST(plain_bytes) {
  for (const int pieces : {1, 5, 1000}) {
    std::vector<uint4> from;
    for (unsigned i = 0; i < unsigned(pieces); ++i) from.push_back({i, 2 * i, 3 * i, i ^ 7});
    const buffer<uint4> in(from), out(pieces);
    run(bulk_copies, {.grid = {1}, .block = {kThreads}, .shared_bytes = 16 + 16 * pieces},
        in.data(), out.data(), 16 * pieces);
    const std::vector<uint4> got = out.get();
    for (unsigned i = 0; i < unsigned(pieces); ++i) {
      CHECK_EQUAL(got[i].x, i + 1);
      CHECK_EQUAL(got[i].y, 2 * i);
      CHECK_EQUAL(got[i].z, 3 * i);
      CHECK_EQUAL(got[i].w, i ^ 7);
    }
  }
}

}  // namespace
