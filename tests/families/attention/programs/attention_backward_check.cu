// The kernels for Hopper in the calls of attention_backward_cases.h and of
// attention_backward_bounds_cases.h; and where many packed sequences start.
#include <numeric>

// The first of all, because a mutant may find what others leave on the stacks of the threads.
#include "attention_backward_bounds_cases.h"

#include "attention_backward_cases.h"

#if CONFIGS == 0

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
