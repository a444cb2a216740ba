// h100_attention.cu as a translation unit of its own: that of <kittens/classic.cuh>, for
// check_both.cu.
#include <kittens/classic.cuh>

#include "launch_classic.h"

#include KITTENS_CLASSIC_KERNEL

static_assert(std::is_same_v<kittens::rt_fl<1, 8>, kittens::rt<float, 16, 128>>);
static_assert(std::is_same_v<kittens::in_elements::rt_fl<16, 128>, kittens::rt_fl<1, 8>>);
