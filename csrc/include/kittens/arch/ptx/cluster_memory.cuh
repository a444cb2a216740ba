// arch/cluster_memory.cuh on the device. PTX ISA, Data Movement and Conversion Instructions: mapa,
// ld and st (.shared::cluster), Bulk copy (cp.async.bulk); Parallel Synchronization and
// Communication Instructions: mbarrier.
#pragma once

#include <cstdint>
#include <cstring>

#include "kittens/arch/cluster_memory.cuh"
#include "kittens/arch/keywords.cuh"

namespace kittens::arch {
namespace detail {

// In the window of the cluster's shared memory. Not volatile: the same every time.
KITTENS_DEVICE uint32_t cluster_address(const void* p, int block_rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(shared_address(p)), "r"(block_rank));
  return address;
}

// One register tuple per access size. The 1-byte form travels in a 16-bit register.
template <int Bytes>
struct cluster_access;

#define KITTENS_CLUSTER_ACCESS(bytes, type, n, kind, letter)                                  \
  template <>                                                                                 \
  struct cluster_access<bytes> {                                                              \
    type x[n];                                                                                \
    KITTENS_DEVICE void load(uint32_t from) {                                                 \
      asm volatile("ld.shared::cluster." kind " " KITTENS_LIST_##n(0, 1, 2, 3) ", [%" #n "];" \
                   : KITTENS_OPERANDS_##n("=" letter, x)                                      \
                   : "r"(from)                                                                \
                   : "memory");                                                               \
    }                                                                                         \
    KITTENS_DEVICE void store(uint32_t to) const {                                            \
      asm volatile("st.shared::cluster." kind                                                 \
                   " [%0], " KITTENS_LIST_##n(1, 2, 3, 4) ";" ::"r"(to),                      \
                   KITTENS_OPERANDS_##n(letter, x)                                            \
                   : "memory");                                                               \
    }                                                                                         \
  };
#define KITTENS_LIST_1(a, b, c, d) "%" #a
#define KITTENS_LIST_2(a, b, c, d) "{%" #a ", %" #b "}"
#define KITTENS_LIST_4(a, b, c, d) "{%" #a ", %" #b ", %" #c ", %" #d "}"
#define KITTENS_OPERANDS_1(letter, x) letter(x[0])
#define KITTENS_OPERANDS_2(letter, x) letter(x[0]), letter(x[1])
#define KITTENS_OPERANDS_4(letter, x) letter(x[0]), letter(x[1]), letter(x[2]), letter(x[3])
KITTENS_CLUSTER_ACCESS(1, uint16_t, 1, "u8", "h")
KITTENS_CLUSTER_ACCESS(2, uint16_t, 1, "u16", "h")
KITTENS_CLUSTER_ACCESS(4, uint32_t, 1, "u32", "r")
KITTENS_CLUSTER_ACCESS(8, uint32_t, 2, "v2.u32", "r")
KITTENS_CLUSTER_ACCESS(16, uint32_t, 4, "v4.u32", "r")
#undef KITTENS_LIST_1
#undef KITTENS_LIST_2
#undef KITTENS_LIST_4
#undef KITTENS_OPERANDS_1
#undef KITTENS_OPERANDS_2
#undef KITTENS_OPERANDS_4
#undef KITTENS_CLUSTER_ACCESS

}  // namespace detail

template <class T>
KITTENS_DEVICE T* map_shared(T* p, int block_rank) {
  uint64_t address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(p), "r"(block_rank));
  return reinterpret_cast<T*>(address);
}

template <memory_vector V>
KITTENS_DEVICE V load_cluster(const V* p, int block_rank) {
  detail::cluster_access<sizeof(V)> a;
  a.load(detail::cluster_address(p, block_rank));
  V v;
  memcpy(static_cast<void*>(&v), &a, sizeof(V));
  return v;
}

template <memory_vector V>
KITTENS_DEVICE void store_cluster(V* p, int block_rank, std::type_identity_t<V> v) {
  detail::cluster_access<sizeof(V)> a{};
  memcpy(&a, &v, sizeof(V));
  a.store(detail::cluster_address(p, block_rank));
}

KITTENS_DEVICE void bulk_copy_cluster(void* dst, int block_rank, const void* src, int bytes,
                                      mbarrier* full) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(detail::cluster_address(dst, block_rank)),
      "r"(shared_address(src)), "r"(bytes), "r"(detail::cluster_address(full, block_rank))
      : "memory");
}

KITTENS_DEVICE void mbarrier_arrive_cluster(mbarrier* b, int block_rank, int count = 1) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                   detail::cluster_address(b, block_rank)),
               "r"(count)
               : "memory");
}

KITTENS_DEVICE void mbarrier_wait_cluster(mbarrier* b, uint32_t parity) {
  asm volatile(
      "{\n"
      "  .reg .pred over;\n"
      "  kittens_wait_%=:\n"
      "  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n"
      "  @!over bra kittens_wait_%=;\n"
      "}" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}

}  // namespace kittens::arch
