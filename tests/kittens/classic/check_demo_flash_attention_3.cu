// The fourth kernel of demos/custom_kernel against float64.
#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

namespace {

template <int D, bool Causal>
void check(int heads, int n) {
  const auto run = [](const bf16* q, const bf16* k, const bf16* v, bf16* o, int heads, int n) {
    flash_attention_3({q, k, v, o, heads, n}, D, Causal, nullptr);
  };
  check_attention(heads, n, run, D, Causal);
}

}  // namespace

TEST(few_rows) { check<64, false>(1, 40); }
TEST(few_rows_causal) { check<128, true>(1, 40); }
TEST(full) { check<64, false>(2, 448); }
TEST(causal) { check<64, true>(2, 448); }
TEST(wide) { check<128, false>(1, 400); }
TEST(wide_causal) { check<128, true>(1, 400); }
TEST(causal_of_more_heads_than_go_together) { check<64, true>(9, 200); }
