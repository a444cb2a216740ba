// A program of two translation units: here is that of <kittens.cuh>, with projection.cu; the other,
// h100_attention_alone.cu, is that of <kittens/classic.cuh>.
#include "check_projection.cu"

static_assert(std::is_same_v<kittens::rt_fl<16, 128>, kittens::rt<float, 16, 128>>);

void attention(const bf16* q, const bf16* k, const bf16* v, bf16* o, int heads, int n, int D,
               bool causal);

namespace {

template <int D, bool causal>
void run_attention(const bf16* q, const bf16* k, const bf16* v, bf16* o, int heads, int n) {
  attention(q, k, v, o, heads, n, D, causal);
}

}  // namespace

TEST(narrow) { check_attention(1, 256, run_attention<64, false>); }
TEST(wide) { check_attention(1, 128, run_attention<128, true>, 128, true); }
