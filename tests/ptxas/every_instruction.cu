// Every function of the seam, used once: what tests/ptxas compiles with the oldest CUDA that the
// headers promise to work with. Kernels here are for compiling, not for running.
#include <kittens/arch/arch.cuh>

namespace kittens::arch {

__global__ void threads(int* out) {
  out[0] = thread_id() + lane_id() + warp_id() + block_threads() + elect_one();
  out[1] = block_x() + block_y() + block_z() + grid_x() + grid_y() + grid_z();
  out[2] = cluster_rank() + cluster_blocks();
}

__global__ void grids() {
  wait_prerequisites();
  launch_dependents();
}

__global__ void barriers(int id) {
  sync_block();
  sync_warp();
  sync_warp(0xffffu);
  named_barrier_sync(id, 64);
  named_barrier_arrive(2, 96);
  cluster_arrive();
  cluster_wait();
  cluster_sync();
}

__global__ void shuffles(uint64_t* wide, uint16_t* narrow, unsigned* out) {
  const int lane = lane_id();
  wide[0] = shuffle(wide[lane], 3) + shuffle_down(wide[lane], 1) + shuffle_up(wide[lane], 1);
  narrow[0] = shuffle_xor(narrow[lane], 16);
  out[0] = ballot(lane < 7) + vote_any(out[1] == 1) + vote_all(out[2] == 2);
}

__global__ void maths(float* x, unsigned* n) {
  x[0] = exp2_approx(x[0]) + log2_approx(x[1]) + rsqrt_approx(x[2]) + reciprocal_approx(x[3]) +
         tanh_approx(x[4]) + fma(x[5], x[6], x[7]) + mul_rounded(x[8], x[9]);
  n[0] = popc(n[1]);
  n[1] = round_to_int(x[0]);
  n[2] = byte_permute(n[3], n[4], n[5]);
  n[4] = select_bits(n[5], n[6], n[7]);
  n[3] = fma_bf16_pairs(n[6], n[7], n[8]);
}

template <class V>
__device__ void move(V* global, V* shared) {
  store_shared(shared, load_global(global));
  store_global(global + 1, load_shared(shared + 1));
  store_global_streaming(global + 2, load_global_streaming(global + 3));
  store_global(global + 4, load_global_evict_last(global + 5));
  store_global(global + 6, load_global_evict_last(global + 7, lane_id() < 3), lane_id() > 5);
}

__global__ void memory(void* p) {
  uint8_t* s = dynamic_shared();
  move(static_cast<uint8_t*>(p), s);
  move(static_cast<uint16_t*>(p), reinterpret_cast<uint16_t*>(s));
  move(static_cast<unsigned*>(p), reinterpret_cast<unsigned*>(s));
  move(static_cast<uint2*>(p), reinterpret_cast<uint2*>(s));
  move(static_cast<uint4*>(p), reinterpret_cast<uint4*>(s));
  prefetch_l2(p);
  cp_async<4>(s, p);
  cp_async<8>(s, p, thread_id() < 3);
  cp_async<16>(s, p);
  cp_async_evict_first(s, p);
  cp_async_evict_first(s, p, thread_id() < 3);
  cp_async_commit();
  cp_async_wait<1>();
}

template <class T>
__device__ void atomics_of(T* p) {
  p[0] = atomic_exchange(p + 1, T(1)) + atomic_cas(p + 2, T(1), T(2)) + atomic_add(p + 3, T(3));
  store_release(p + 4, load_acquire(p + 5));
  if constexpr (sizeof(T) == 4) p[6] = atomic_max(p + 7, T(1)) + atomic_min(p + 8, T(2));
}

__global__ void atomics(int* i, unsigned* u, uint64_t* w, float* f) {
  atomics_of(i);
  atomics_of(u);
  atomics_of(w);
  f[0] = atomic_add(f + 1, 1.0f);
  fence_block();
  fence_device();
  fence_async_proxy();
  fence_async_proxy_global();
}

__global__ void mbarriers(int* out) {
  auto* b = reinterpret_cast<mbarrier*>(dynamic_shared());
  mbarrier_init(b, 3);
  fence_mbarrier_init();
  mbarrier_arrive(b);
  mbarrier_arrive(b, 2);
  mbarrier_expect_bytes(b, 16);
  mbarrier_arrive_expect_bytes(b, 16);
  mbarrier_arrive_remote(b, 1);
  mbarrier_arrive_remote(b, 1, 2);
  out[0] = mbarrier_test(b, 0);
  mbarrier_wait(b, 1);
  mbarrier_invalidate(b);
}

template <class V>
__device__ void reach(V* p, int rank) {
  store_cluster(p, rank, load_cluster(p + 1, rank));
}

__global__ void cluster_memory(int rank) {
  uint8_t* s = dynamic_shared();
  reach(s, rank);
  reach(reinterpret_cast<uint16_t*>(s), rank);
  reach(reinterpret_cast<unsigned*>(s), rank);
  reach(reinterpret_cast<uint2*>(s), rank);
  reach(reinterpret_cast<uint4*>(s), rank);
  atomic_add(map_shared(reinterpret_cast<int*>(s), rank), 1);
  auto* full = reinterpret_cast<mbarrier*>(s + 4096);
  bulk_copy_cluster(s, rank, s + 1024, 512, full);
  mbarrier_arrive_cluster(full, rank);
  mbarrier_arrive_cluster(full, rank, 2);
  mbarrier_wait_cluster(full, 0);
}

template <class... C>
__device__ void tensors_of(const tensor_map& map, mbarrier* full, C... c) {
  uint8_t* s = dynamic_shared();
  tma_load(s, &map, full, c...);
  tma_load_evict_first(s, &map, full, c...);
  tma_load_multicast(s, &map, full, 3, c...);
  tma_store(&map, s, c...);
  tma_store_add(&map, s, c...);
  tma_prefetch(&map, c...);
}

__global__ void tensors(const __grid_constant__ tensor_map map, uint8_t* p, int c) {
  uint8_t* s = dynamic_shared();
  auto* full = reinterpret_cast<mbarrier*>(s + 4096);
  tma_prefetch_map(&map);
  fence_tensor_map(&map);
  tma_prefetch_map(fenced_tensor_map(&map));
  tensors_of(map, full, c);
  tensors_of(map, full, c, 1);
  tensors_of(map, full, c, 1, 2);
  tensors_of(map, full, c, 1, 2, 3);
  tensors_of(map, full, c, 1, 2, 3, 4);
  bulk_load(s, p, 1024, full);
  bulk_store(p, s, 1024);
  bulk_commit();
  bulk_wait_read<1>();
  bulk_wait<0>();
}

template <bool Transposed, int Count>
__device__ void matrices_of(uint8_t* row) {
  uint32_t d[Count];
  load_matrix<Transposed, Count>(d, row);
  store_matrix<Transposed, Count>(row + 512, d);
}

__global__ void matrices(uint32_t* words) {
  words[lane_id()] = transpose_matrix(words[lane_id()]);
  uint8_t* row = dynamic_shared() + lane_id() * 16;
  matrices_of<false, 1>(row);
  matrices_of<false, 2>(row);
  matrices_of<false, 4>(row);
  matrices_of<true, 1>(row);
  matrices_of<true, 2>(row);
  matrices_of<true, 4>(row);
}

template <class T>
__global__ void products(float* out, const uint32_t* in) {
  const uint32_t a[4] = {in[0], in[1], in[2], in[3]}, b[2] = {in[4], in[5]};
  float d[4] = {};
  mma_m16n8k16<T>(d, a, b, d);
  for (int i = 0; i < 4; ++i) out[i] = d[i];
}
template __global__ void products<__nv_bfloat16>(float*, const uint32_t*);
template __global__ void products<__half>(float*, const uint32_t*);

// A product of each kind: from shared memory, and with a in registers.
template <class T, int N, major A, major B>
__global__ void wide_products(float* out, const uint32_t* in) {
  const uint32_t address = shared_address(dynamic_shared());
  const uint64_t operand = matrix_descriptor(address, 16, 1024, 128);
  const uint32_t a[4] = {in[0], in[1], in[2], in[3]};
  float d[N / 2] = {};
  wgmma_fence();
  wgmma<T, N, A, B>(d, operand, operand, false);
  wgmma<T, N, B>(d, a, operand, true);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_hold(d);
#pragma unroll
  for (int i = 0; i < N / 2; ++i) out[i * 128 + thread_id()] = d[i];
}

#define WIDTH(n)                                                                        \
  template __global__ void wide_products<__nv_bfloat16, n, major::k, major::mn>(float*, \
                                                                                const uint32_t*);
#define WIDTHS(n) WIDTH(n) WIDTH(n + 8) WIDTH(n + 16) WIDTH(n + 24)
WIDTHS(8)
WIDTHS(40)
WIDTHS(72)
WIDTHS(104)
WIDTHS(136)
WIDTHS(168)
WIDTHS(200)
WIDTHS(232)
template __global__ void wide_products<__half, 64, major::k, major::k>(float*, const uint32_t*);
template __global__ void wide_products<__half, 64, major::mn, major::k>(float*, const uint32_t*);
template __global__ void wide_products<__half, 64, major::mn, major::mn>(float*, const uint32_t*);

__global__ void __launch_bounds__(384, 1) registers(int* out) {
  if (warp_id() < 4) {
    lower_registers<24>();
  } else {
    raise_registers<240>();
  }
  out[thread_id()] = 1;
}

}  // namespace kittens::arch
