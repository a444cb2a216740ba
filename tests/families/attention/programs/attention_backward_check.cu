// The kernels for Hopper in the calls of attention_backward_cases.h and of
// attention_backward_bounds_cases.h; and where many packed sequences start.
#include <numeric>

// The first of all, because a mutant may find what others leave on the stacks of the threads.
#include "attention_backward_bounds_cases.h"

#include "attention_backward_cases.h"

#if CONFIGS == 0

// Whether dq is added up, of `keys` that all of 100 rows see, or of which each sees its own.
bool adds_dq(int64_t width, int64_t keys, int64_t shares = 1, bool causal = false,
             int64_t left = kAll, float softcap = 0) {
  attention_backward_params p{};
  p.rows = causal ? keys : 100;
  p.keys = keys;
  p.heads = 4;
  p.key_heads = 4 / shares;
  p.head_dim = p.value_dim = width;
  p.batch = 1;
  p.left = left;
  p.right = causal ? 0 : kAll;
  p.softcap = softcap;
  return attention_backward_layout(p, kittens::host::kernel_kind::specialised).adds_dq;
}

TEST(dq_is_added_up_where_rows_see_many_keys) {
  for (const auto& [width, most] : {std::pair{64, 384}, {128, 640}}) {
    CHECK_EQUAL(adds_dq(width, most), false);
    CHECK_EQUAL(adds_dq(width, most + 1), true);
    CHECK_EQUAL(adds_dq(width, 2 * most - 2, 1, true), false);  // half of them, about
    CHECK_EQUAL(adds_dq(width, 2 * most + 8, 1, true), true);
    CHECK_EQUAL(adds_dq(width, 16 * most, 1, true, most / 2), false);  // a window
    CHECK_EQUAL(adds_dq(width, most * 3 / 4, 4), false);  // what four heads share costs less
    CHECK_EQUAL(adds_dq(width, most * 3 / 4 + 1, 4), true);
    CHECK_EQUAL(adds_dq(width, 10, 1, false, kAll, 5), true);
  }
  CHECK_EQUAL(adds_dq(256, 5000), false);
}

// Of dq the second consumer has fewer columns than the first.
TEST(heads_that_end_within_a_chunk) {
  for (const auto& [head_dim, value_dim] : {std::pair{72, 96}, {96, 40}, {24, 88}}) {
    problem is{.batch = 1, .rows = 130, .keys = 200, .heads = 2, .key_heads = 1, .right = 0};
    is.head_dim = head_dim;
    is.value_dim = value_dim;
    check<bf16>(is);
  }
}

TEST(starts_of_many_sequences) {  // more than a warp's lanes take at a time
  std::vector<int> ends(600);
  std::iota(ends.begin(), ends.end(), 3);
  ends[300] = 5;  // counts as the one before
  std::vector<int> want = ends;
  want[300] = ends[299];
  want.insert(want.begin(), 0);
  want.push_back(700);
  const buffer<int> from(ends), to(want.size());
  run_starts(from.data(), int(ends.size()), 700, to.data());
  CHECK_EQUAL(to.get() == want, true);
}

#endif
