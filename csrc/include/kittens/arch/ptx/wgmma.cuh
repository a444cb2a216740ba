// arch/wgmma.cuh on the device. PTX ISA, Asynchronous Warpgroup Level Matrix Instructions: wgmma.
//
// Inline asm names its operands by number, and cannot take an array of registers, so the
// preprocessor writes the lists: a product of width N has accumulators 0 to N / 2 − 1, and the
// operands after them.
#pragma once

#include "kittens/arch/keywords.cuh"
#include "kittens/arch/wgmma.cuh"

namespace kittens::arch {

// clang-format off
#define KITTENS_D_8(X) X(0), X(1), X(2), X(3)
#define KITTENS_D_16(X) KITTENS_D_8(X), X(4), X(5), X(6), X(7)
#define KITTENS_D_24(X) KITTENS_D_16(X), X(8), X(9), X(10), X(11)
#define KITTENS_D_32(X) KITTENS_D_24(X), X(12), X(13), X(14), X(15)
#define KITTENS_D_40(X) KITTENS_D_32(X), X(16), X(17), X(18), X(19)
#define KITTENS_D_48(X) KITTENS_D_40(X), X(20), X(21), X(22), X(23)
#define KITTENS_D_56(X) KITTENS_D_48(X), X(24), X(25), X(26), X(27)
#define KITTENS_D_64(X) KITTENS_D_56(X), X(28), X(29), X(30), X(31)
#define KITTENS_D_72(X) KITTENS_D_64(X), X(32), X(33), X(34), X(35)
#define KITTENS_D_80(X) KITTENS_D_72(X), X(36), X(37), X(38), X(39)
#define KITTENS_D_88(X) KITTENS_D_80(X), X(40), X(41), X(42), X(43)
#define KITTENS_D_96(X) KITTENS_D_88(X), X(44), X(45), X(46), X(47)
#define KITTENS_D_104(X) KITTENS_D_96(X), X(48), X(49), X(50), X(51)
#define KITTENS_D_112(X) KITTENS_D_104(X), X(52), X(53), X(54), X(55)
#define KITTENS_D_120(X) KITTENS_D_112(X), X(56), X(57), X(58), X(59)
#define KITTENS_D_128(X) KITTENS_D_120(X), X(60), X(61), X(62), X(63)
#define KITTENS_D_136(X) KITTENS_D_128(X), X(64), X(65), X(66), X(67)
#define KITTENS_D_144(X) KITTENS_D_136(X), X(68), X(69), X(70), X(71)
#define KITTENS_D_152(X) KITTENS_D_144(X), X(72), X(73), X(74), X(75)
#define KITTENS_D_160(X) KITTENS_D_152(X), X(76), X(77), X(78), X(79)
#define KITTENS_D_168(X) KITTENS_D_160(X), X(80), X(81), X(82), X(83)
#define KITTENS_D_176(X) KITTENS_D_168(X), X(84), X(85), X(86), X(87)
#define KITTENS_D_184(X) KITTENS_D_176(X), X(88), X(89), X(90), X(91)
#define KITTENS_D_192(X) KITTENS_D_184(X), X(92), X(93), X(94), X(95)
#define KITTENS_D_200(X) KITTENS_D_192(X), X(96), X(97), X(98), X(99)
#define KITTENS_D_208(X) KITTENS_D_200(X), X(100), X(101), X(102), X(103)
#define KITTENS_D_216(X) KITTENS_D_208(X), X(104), X(105), X(106), X(107)
#define KITTENS_D_224(X) KITTENS_D_216(X), X(108), X(109), X(110), X(111)
#define KITTENS_D_232(X) KITTENS_D_224(X), X(112), X(113), X(114), X(115)
#define KITTENS_D_240(X) KITTENS_D_232(X), X(116), X(117), X(118), X(119)
#define KITTENS_D_248(X) KITTENS_D_240(X), X(120), X(121), X(122), X(123)
#define KITTENS_D_256(X) KITTENS_D_248(X), X(124), X(125), X(126), X(127)

// ROW(T, N, the numbers of seven operands behind the accumulators)
#define KITTENS_EACH_WIDTH(ROW, T) \
  ROW(T, 8, 4, 5, 6, 7, 8, 9, 10) \
  ROW(T, 16, 8, 9, 10, 11, 12, 13, 14) \
  ROW(T, 24, 12, 13, 14, 15, 16, 17, 18) \
  ROW(T, 32, 16, 17, 18, 19, 20, 21, 22) \
  ROW(T, 40, 20, 21, 22, 23, 24, 25, 26) \
  ROW(T, 48, 24, 25, 26, 27, 28, 29, 30) \
  ROW(T, 56, 28, 29, 30, 31, 32, 33, 34) \
  ROW(T, 64, 32, 33, 34, 35, 36, 37, 38) \
  ROW(T, 72, 36, 37, 38, 39, 40, 41, 42) \
  ROW(T, 80, 40, 41, 42, 43, 44, 45, 46) \
  ROW(T, 88, 44, 45, 46, 47, 48, 49, 50) \
  ROW(T, 96, 48, 49, 50, 51, 52, 53, 54) \
  ROW(T, 104, 52, 53, 54, 55, 56, 57, 58) \
  ROW(T, 112, 56, 57, 58, 59, 60, 61, 62) \
  ROW(T, 120, 60, 61, 62, 63, 64, 65, 66) \
  ROW(T, 128, 64, 65, 66, 67, 68, 69, 70) \
  ROW(T, 136, 68, 69, 70, 71, 72, 73, 74) \
  ROW(T, 144, 72, 73, 74, 75, 76, 77, 78) \
  ROW(T, 152, 76, 77, 78, 79, 80, 81, 82) \
  ROW(T, 160, 80, 81, 82, 83, 84, 85, 86) \
  ROW(T, 168, 84, 85, 86, 87, 88, 89, 90) \
  ROW(T, 176, 88, 89, 90, 91, 92, 93, 94) \
  ROW(T, 184, 92, 93, 94, 95, 96, 97, 98) \
  ROW(T, 192, 96, 97, 98, 99, 100, 101, 102) \
  ROW(T, 200, 100, 101, 102, 103, 104, 105, 106) \
  ROW(T, 208, 104, 105, 106, 107, 108, 109, 110) \
  ROW(T, 216, 108, 109, 110, 111, 112, 113, 114) \
  ROW(T, 224, 112, 113, 114, 115, 116, 117, 118) \
  ROW(T, 232, 116, 117, 118, 119, 120, 121, 122) \
  ROW(T, 240, 120, 121, 122, 123, 124, 125, 126) \
  ROW(T, 248, 124, 125, 126, 127, 128, 129, 130) \
  ROW(T, 256, 128, 129, 130, 131, 132, 133, 134)
#define KITTENS_NAME(i) %i
// clang-format on

#define KITTENS_TEXT_(...) #__VA_ARGS__
#define KITTENS_TEXT(...) KITTENS_TEXT_(__VA_ARGS__)
#define KITTENS_BIND(i) "+f"(d[i])

// Names and types of the instruction; then, after the operands, whether to accumulate (a predicate,
// which ptxas folds where it is constant), the signs of a and b, and what is MN-major.
#define KITTENS_WGMMA(T, N, operands, accumulate, immediates) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %" #accumulate            \
  ", 0;\n"                                                    \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." T "." T   \
  " {" KITTENS_TEXT(KITTENS_D_##N(KITTENS_NAME)) "}, " operands ", p, 1, 1, " immediates ";\n}"
#define KITTENS_SHARED_A(T, N, p0, p1, p2, p3, p4, ...)                        \
  if constexpr (N == Width) {                                                  \
    asm volatile(KITTENS_WGMMA(T, N, "%" #p0 ", %" #p1, p2, "%" #p3 ", %" #p4) \
                 : KITTENS_D_##N(KITTENS_BIND)                                 \
                 : "l"(a), "l"(b), "r"(int{accumulate}), "n"(A == major::mn),  \
                   "n"(B == major::mn));                                       \
  }
#define KITTENS_REGISTER_A(T, N, p0, p1, p2, p3, p4, p5, p6)                                \
  if constexpr (N == Width) {                                                               \
    asm volatile(                                                                           \
        KITTENS_WGMMA(T, N, "{%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4, p5, "%" #p6) \
        : KITTENS_D_##N(KITTENS_BIND)                                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{accumulate}),         \
          "n"(B == major::mn));                                                             \
  }

template <matrix_element T, int Width, major A = major::k, major B = major::k>
KITTENS_DEVICE void wgmma(float (&d)[Width / 2], uint64_t a, uint64_t b, bool accumulate) {
  static_assert(is_wgmma_width<Width>, "the width of a wgmma is a multiple of 8 up to 256");
  if constexpr (std::same_as<T, __half>) {
    KITTENS_EACH_WIDTH(KITTENS_SHARED_A, "f16")
  } else {
    KITTENS_EACH_WIDTH(KITTENS_SHARED_A, "bf16")
  }
}

template <matrix_element T, int Width, major B = major::k>
KITTENS_DEVICE void wgmma(float (&d)[Width / 2], const uint32_t (&a)[4], uint64_t b,
                          bool accumulate) {
  static_assert(is_wgmma_width<Width>, "the width of a wgmma is a multiple of 8 up to 256");
  if constexpr (std::same_as<T, __half>) {
    KITTENS_EACH_WIDTH(KITTENS_REGISTER_A, "f16")
  } else {
    KITTENS_EACH_WIDTH(KITTENS_REGISTER_A, "bf16")
  }
}

#undef KITTENS_REGISTER_A
#undef KITTENS_SHARED_A
#undef KITTENS_WGMMA

KITTENS_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

KITTENS_DEVICE void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N>
KITTENS_DEVICE void wgmma_wait() {
  static_assert(N >= 0 && N <= 7, "wgmma_wait takes 0 to 7 groups that may still be under way");
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

namespace detail {

// An empty instruction that reads and writes a register.
KITTENS_DEVICE void hold(float& x) { asm volatile("" : "+f"(x)); }
KITTENS_DEVICE void hold(uint32_t& x) { asm volatile("" : "+r"(x)); }

template <class R, int N>
KITTENS_DEVICE void hold(R (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) hold(registers[i]);
}

}  // namespace detail

template <class... R>
KITTENS_DEVICE void wgmma_hold(R&... registers) {
  (detail::hold(registers), ...);
}

KITTENS_DEVICE constexpr uint64_t matrix_descriptor(uint32_t shared_address, int leading_bytes,
                                                    int stride_bytes, int swizzle_bytes) {
  return detail::encode_matrix(shared_address, leading_bytes, stride_bytes, swizzle_bytes);
}

}  // namespace kittens::arch
