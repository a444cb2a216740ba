// The third kernel of demos/custom_kernel against float64.
#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

namespace {

void run_demo(const bf16* q, const bf16* k, const bf16* v, bf16* o, int heads, int n) {
  load_store_compute_finish({q, k, v, o, heads, n}, nullptr);
}

}  // namespace

TEST(one_step_and_a_quarter_of_a_block) { check_attention(1, 64, run_demo); }
TEST(the_ring_goes_round) { check_attention(1, 384, run_demo); }
TEST(a_block_has_several_tiles) { check_attention(3, 320, run_demo); }
