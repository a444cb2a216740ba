// The kernel of attention.cu, with four warps and with eight, against float64.
#include "classic.h"

namespace four_warps {
#include KITTENS_CLASSIC_KERNEL
}
#undef NUM_WORKERS
#define NUM_WORKERS 8
namespace eight_warps {
#include KITTENS_CLASSIC_KERNEL
}

using kittens::bf16;
using namespace kittens::testing;

namespace {

template <auto Attention>
void run_attention(const bf16* q, const bf16* k, const bf16* v, bf16* o, int heads, int n) {
  Attention(q, k, v, o, heads, n, nullptr);
}

}  // namespace

TEST(one_block_of_keys) { check_attention(1, 64, run_attention<four_warps::attention>); }
TEST(many) { check_attention(3, 192, run_attention<four_warps::attention>); }
TEST(eight) { check_attention(2, 256, run_attention<eight_warps::attention>); }
