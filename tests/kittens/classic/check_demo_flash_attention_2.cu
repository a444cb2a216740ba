// The second kernel of demos/custom_kernel against float64.
#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

namespace {

void run_demo(const bf16* q, const bf16* k, const bf16* v, bf16* o, int heads, int n) {
  CHECK_EQUAL(int{flash_attention_2({q, k, v, o, heads, n}, nullptr)}, int{cudaSuccess});
}

}  // namespace

TEST(one_step_and_half_a_block) { check_attention(1, 64, run_demo); }
TEST(whole_blocks) { check_attention(1, 256, run_demo); }
TEST(many) { check_attention(3, 192, run_demo); }
