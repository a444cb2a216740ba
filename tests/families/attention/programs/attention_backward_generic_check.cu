// The generic kernel in the calls of attention_backward_cases.h.
#include "attention_backward_cases.h"

#if CONFIGS == 2
TEST(wide_heads_whose_scores_are_capped) {
  problem is = wide(150, 300, 2, 0);
  is.softcap = 5;
  check<T>(is);
}
#endif
