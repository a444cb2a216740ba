// pipeline/tile_scheduler.cuh and pipeline/ordered_barrier.cuh: every tile once, in order, of a
// static and a dynamic schedule; warpgroup after warpgroup.
#include <set>
#include <tuple>

#include <kittens.cuh>
#include "harness.h"

using namespace kittens;
using testing::buffer;
using testing::run;

namespace {

std::vector<std::tuple<int, int, int>> places(const tile_scheduler& tiles) {
  std::vector<std::tuple<int, int, int>> all;
  for (int i = 0; i < tiles.count(); ++i) {
    const auto [m, head, batch] = tiles.place(i);
    all.emplace_back(batch, head, m);
  }
  return all;
}

TEST(rows_run_fastest_then_heads) {
  const tile_scheduler tiles{.rows = 3, .heads = 2, .batches = 2};
  const auto all = places(tiles);
  CHECK_EQUAL(all.size(), 12u);
  CHECK(std::is_sorted(all.begin(), all.end()));
  CHECK((all[5] == std::tuple(0, 1, 2)));
  CHECK((all[6] == std::tuple(1, 0, 0)));
}

TEST(the_last_row_comes_first_when_asked) {
  const tile_scheduler tiles{.rows = 3, .heads = 2, .batches = 1, .last_first = true};
  const auto all = places(tiles);
  CHECK((all[0] == std::tuple(0, 0, 2)));
  CHECK((all[2] == std::tuple(0, 0, 0)));
  CHECK((all[3] == std::tuple(0, 1, 2)));
}

TEST(pairs_that_go_together_take_their_rows_in_step) {
  for (const int together : {1, 2, 4, 5, 6, 100}) {
    const tile_scheduler tiles{
        .rows = 5, .heads = 3, .batches = 2, .last_first = true, .together = together};
    const auto all = places(tiles);
    CHECK_EQUAL(std::set(all.begin(), all.end()).size(), 30u);
    int before = 0;  // the row of the tile before, within a section
    for (size_t i = 0; i < all.size(); ++i) {
      const auto [batch, head, m] = all[i];
      CHECK(m >= 0 && m < 5 && head >= 0 && head < 3 && batch >= 0 && batch < 2);
      const int pair = batch * 3 + head, section = static_cast<int>(i) / (5 * together);
      CHECK_EQUAL(pair / together, section);
      if (i % (5 * together) != 0) CHECK(m <= before);
      before = m;
    }
  }
}

__global__ void walk(const __grid_constant__ tile_scheduler tiles, int* visits) {
  for (tile_walk tile(tiles); tile.valid(); tile.next()) {
    const auto [m, head, batch] = tile.place();
    if (arch::thread_id() == 0) ++visits[(batch * tiles.heads + head) * tiles.rows + m];
  }
}

TEST(blocks_share_the_tiles) {
  for (const int blocks : {1, 4, 7, 42, 50}) {
    buffer<int> visits(std::vector<int>(42, 0));
    run(walk, {.grid = {blocks}, .block = {32}}, {.rows = 7, .heads = 3, .batches = 2},
        visits.data());
    for (const int n : visits.get()) CHECK_EQUAL(n, 1);
  }
}

// One thread takes the tiles, and tells the block. `taken_by` and `turn` say of each tile which
// block has had it, and after how many others; `visits` counts the threads that have been told of
// it.
__global__ void take(const __grid_constant__ tile_scheduler tiles, int* taken_by, int* turn,
                     int* visits) {
  constexpr int kEnd = -1;
  auto& told = *reinterpret_cast<volatile int*>(arch::dynamic_shared());
  tile_walk tile(tiles);
  for (int n = 0; n <= tiles.count(); ++n) {  // should there be no end, one more is enough
    if (arch::thread_id() == 0) {
      told = kEnd;
      if (tile.valid()) {
        const auto [m, head, batch] = tile.place();
        told = (batch * tiles.heads + head) * tiles.rows + m;
        taken_by[told] = arch::block_x();
        turn[told] = n;
        tile.next();
      }
    }
    arch::sync_block();
    const int place = told;
    arch::sync_block();
    if (place == kEnd) return;
    arch::atomic_add(&visits[place], 1);
  }
}

// Launches twice with one counter.
void check_dynamic(tile_scheduler tiles, int blocks) {
  constexpr int kThreads = 64;
  const int count = tiles.count();
  const buffer<int> counter(std::vector<int>{0}), taken_by(count), turn(count);
  tiles.counter = counter.data();
  const auto all = places(tiles);
  for (int launch = 0; launch < 2; ++launch) {
    const buffer<int> visits(std::vector<int>(count, 0));
    run(take, {.grid = {blocks}, .block = {kThreads}, .shared_bytes = 16}, tiles, taken_by.data(),
        turn.data(), visits.data());
    CHECK_EQUAL(counter.get()[0], 0);
    const std::vector<int> by = taken_by.get(), nth = turn.get(), visited = visits.get();
    std::vector<int> turns_of(blocks, 0);  // how many tiles the block has had
    for (int i = 0; i < count; ++i) {      // in the order of the scheduler
      const auto [batch, head, m] = all[i];
      const int place = (batch * tiles.heads + head) * tiles.rows + m;
      CHECK_EQUAL(visited[place], kThreads);
      if (i < blocks) CHECK_EQUAL(by[place], i);  // a block's first tile is its own
      CHECK(by[place] >= 0 && by[place] < blocks);
      if (by[place] < 0 || by[place] >= blocks) return;
      CHECK_EQUAL(nth[place], turns_of[by[place]]++);
    }
  }
}

TEST(a_dynamic_schedule_has_each_tile_once_and_in_order) {
  for (const int blocks : {1, 2, 4, 7, 41, 42, 43, 50}) {
    check_dynamic({.rows = 7, .heads = 3, .batches = 2}, blocks);
  }
  check_dynamic({}, 1);
  check_dynamic({}, 3);
  check_dynamic({.rows = 100, .heads = 2}, 5);
}

TEST(a_dynamic_schedule_keeps_to_the_order_that_is_asked_for) {
  for (const int together : {1, 2, 4, 6, 100}) {
    for (const bool last_first : {false, true}) {
      check_dynamic(
          {.rows = 5, .heads = 3, .batches = 2, .last_first = last_first, .together = together}, 4);
    }
  }
}

// Block 0 does not end its first tile before all others have been done.
__global__ void slow_first_tile(const __grid_constant__ tile_scheduler tiles, int* done, int* by) {
  if (arch::thread_id() != 0) return;
  int n = 0;
  for (tile_walk tile(tiles); tile.valid(); tile.next()) {
    const auto [m, head, batch] = tile.place();
    by[m] = arch::block_x();
    if (m == 0) {
      while (arch::load_acquire(done) < tiles.count() - 1) {
      }
    }
    arch::atomic_add(done, 1);
    ++n;
  }
  if (arch::block_x() == 0) by[tiles.count()] = n;
}

TEST(a_block_with_a_long_tile_leaves_the_others_to_the_others) {
  constexpr int kTiles = 30;
  const buffer<int> counter(std::vector<int>{0}), done(std::vector<int>{0}), by(kTiles + 1);
  run(slow_first_tile, {.grid = {3}, .block = {32}}, {.rows = kTiles, .counter = counter.data()},
      done.data(), by.data());
  const std::vector<int> got = by.get();
  CHECK_EQUAL(got[0], 0);
  for (int i = 1; i < kTiles; ++i) CHECK(got[i] == 1 || got[i] == 2);
  CHECK_EQUAL(got[kTiles], 1);
  CHECK_EQUAL(done.get()[0], kTiles);
  CHECK_EQUAL(counter.get()[0], 0);
}

// A block's warpgroups write their numbers to a list, each in its turn.
template <int N>
__global__ void sign_in_turn(int* list, int rounds) {
  const int w = warpgroupid();
  auto& length = *reinterpret_cast<volatile int*>(arch::dynamic_shared());
  if (arch::thread_id() == 0) length = 0;
  using order = ordered_barrier<N, 3>;
  for (int again = 0; again < 2; ++again) {
    arch::sync_block();
    order::start(w);
    for (int i = 0; i < rounds; ++i) {
      order::wait(w);
      if (arch::thread_id() % 128 == 0) {
        list[length] = w;
        length = length + 1;
      }
      order::arrive(w);
    }
    order::finish(w);
  }
}

template <int N>
void check_turns() {
  constexpr int kRounds = 4;
  buffer<int> list(2 * kRounds * N);
  run(sign_in_turn<N>, {.grid = {1}, .block = {128 * N}, .shared_bytes = 16}, list.data(), kRounds);
  const std::vector<int> got = list.get();
  for (int i = 0; i < 2 * kRounds * N; ++i) CHECK_EQUAL(got[i], i % N);
}

TEST(warpgroups_take_turns) {
  check_turns<1>();
  check_turns<2>();
  check_turns<3>();
}

}  // namespace
