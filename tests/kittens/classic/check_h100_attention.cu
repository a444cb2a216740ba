// The kernels of h100_attention.cu against float64.
#include <kittens/classic.cuh>

#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

namespace {

template <int D, bool causal>
void run_attention(const bf16* q, const bf16* k, const bf16* v, bf16* o, int heads, int n) {
  attention(q, k, v, o, heads, n, D, causal);
}

}  // namespace

TEST(one_block_of_rows) { check_attention(1, 128, run_attention<64, false>); }
TEST(many) { check_attention(2, 384, run_attention<64, false>); }
TEST(many_causal) { check_attention(2, 384, run_attention<64, true>, 64, true); }
TEST(wide) { check_attention(2, 256, run_attention<128, false>, 128); }
TEST(wide_causal) { check_attention(2, 256, run_attention<128, true>, 128, true); }
