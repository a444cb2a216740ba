// The kernel of attention.cu against float64.
#include "classic.h"

#include KITTENS_CLASSIC_KERNEL

using namespace kittens::testing;

TEST(one_block_of_keys) { check_attention(1, 64, attention); }
TEST(many) { check_attention(3, 192, attention); }
