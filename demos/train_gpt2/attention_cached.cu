// One new token's attention to a cache of keys and values, for what `attention_decode` does not
// take: float32, and heads of more than 256 columns or of no multiple of 8. A warp for each head,
// key by key: slow, and only samples are drawn by it.
#include "lane_values.cuh"

#include <kittens/host/launch.cuh>

namespace gpt2 {
namespace {

template <class T>
__global__ void __launch_bounds__(32) cached_kernel(cached_attention p, cached_tensors t) {
  const int64_t width = p.key_heads * p.head_dim, head = arch::block_x() * p.head_dim;
  const int64_t key_head = arch::block_x() / (p.heads / p.key_heads) * p.head_dim;
  lane_values q, o;
  load(q, static_cast<const T*>(t.q) + head, p.head_dim);
  attend(o, q, static_cast<const T*>(t.k) + key_head, static_cast<const T*>(t.v) + key_head, width,
         arch::load_global(t.keys), p.head_dim);
  store(static_cast<T*>(t.o) + head, o, p.head_dim);
}

}  // namespace

void attention_cached(const cached_attention& p, const cached_tensors& t, stream s) {
  const host::launch_config config{.grid = {p.heads}, .block = {32}};
  if (p.type == dtype::float32) return host::launch(cached_kernel<float>, config, s, p, t);
  host::launch(cached_kernel<bf16>, config, s, p, t);
}

}  // namespace gpt2
