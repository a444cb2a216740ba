// types/shared_tile.cuh: where each element is, against the swizzling modes of the PTX ISA, and
// that accesses of a warp have no bank conflicts.
#include <set>

#include "tiles.h"

using namespace kittens;
using namespace kittens::testing;
namespace st_layout = ducks::st_layout;
namespace rt_layout = ducks::rt_layout;

namespace {

// The byte of element (r, c), written down mode by mode: a row of a chunk is 128, 64 or 32 bytes
// wide; in a pattern of 1024, 512 or 256 bytes, pieces of 16 bytes change places with the number of
// the 128 bytes that they are in.
template <class S>
int swizzled_byte(int r, int c) {
  const int row_bytes = S::swizzle_bytes, size = sizeof(typename S::dtype);
  const int chunk = c * size / row_bytes, byte = c * size % row_bytes;
  const int in_chunk = r * row_bytes + byte;
  const int line = in_chunk / 128 % 8, piece = in_chunk % 128 / 16;
  const int moved = row_bytes == 128  ? piece ^ line
                    : row_bytes == 64 ? piece ^ (line % 4)
                                      : piece ^ (line % 2);
  return chunk * S::rows * row_bytes + in_chunk / 128 * 128 + moved * 16 + in_chunk % 16;
}

template <class S>
void check_layout() {
  constexpr int size = sizeof(typename S::dtype);
  constexpr int cols = S::cols + S::padding_cols, all = S::rows * cols;
  std::set<int> taken;
  for (int r = 0; r < S::rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      const int index = S::index(r, c);
      taken.insert(index);
      if constexpr (S::is_swizzled) {
        CHECK_EQUAL(index * size, swizzled_byte<S>(r, c));
      } else {
        CHECK_EQUAL(index, r * S::cols + c);
      }
    }
  }
  CHECK_EQUAL(static_cast<int>(taken.size()), all);
  CHECK(*taken.begin() == 0 && *taken.rbegin() == all - 1);
  CHECK_EQUAL(static_cast<int>(sizeof(S)), all * size);
}

TEST(elements_are_where_the_tensor_cores_look) {
  for_each_shared_tile([&]<class S>() { check_layout<S>(); });
  check_layout<st_bf<64, 128>>();
  check_layout<st_fl<16, 96>>();
  check_layout<st_bf<64, 80, st_layout::swizzle_128>>();
  check_layout<st_hf<32, 96, st_layout::swizzle_128>>();
  check_layout<st_bf<16, 16, st_layout::swizzle_128>>();
  check_layout<st_fl<16, 80, st_layout::swizzle_128>>();
}

TEST(chunks_are_as_wide_as_the_columns_allow) {
  static_assert(st_bf<16, 64>::swizzle_bytes == 128 && st_bf<16, 128>::chunks == 2);
  static_assert(st_bf<16, 32>::swizzle_bytes == 64 && st_bf<16, 96>::swizzle_bytes == 64);
  static_assert(st_bf<16, 16>::swizzle_bytes == 32 && st_bf<16, 48>::chunks == 3);
  static_assert(st_fl<16, 16>::swizzle_bytes == 64 && st_fl<16, 32>::swizzle_bytes == 128);
  static_assert(alignof(st_bf<64, 64>) == 1024 && alignof(st_bf<64, 32>) == 512);
  static_assert(alignof(st_bf<64, 16>) == 256 && alignof(st_bf<64, 64, st_layout::naive>) == 16);
  static_assert(sizeof(st_bf<64, 64>) == 64 * 64 * 2);
}

// Rows, columns, chunks and padding, of 128 bytes a row of a chunk.
template <class S>
inline constexpr bool has_wide_chunks =
    S::is_swizzled && S::swizzle_bytes == 128 && alignof(S) == 1024 &&
    S::chunk_cols * sizeof(typename S::dtype) == 128 &&
    S::chunk_elements == S::rows * S::chunk_cols;
template <class S, int Chunks, int Padding>
inline constexpr bool is_padded =
    has_wide_chunks<S> && S::chunks == Chunks && S::padding_cols == Padding &&
    sizeof(S) == Chunks * S::rows * 128 && S::num_elements == S::rows * S::cols;

TEST(padding_ends_the_last_chunk) {
  static_assert(is_padded<st_bf<48, 80, st_layout::swizzle_128>, 2, 48>);
  static_assert(is_padded<st_bf<48, 96, st_layout::swizzle_128>, 2, 32>);
  static_assert(is_padded<st_hf<48, 16, st_layout::swizzle_128>, 1, 48>);
  static_assert(is_padded<st_hf<16, 112, st_layout::swizzle_128>, 2, 16>);
  static_assert(is_padded<st_fl<16, 80, st_layout::swizzle_128>, 3, 16>);
  static_assert(st_bf<16, 80>::padding_cols == 0 && st_bf<16, 80>::chunks == 5);
  static_assert(st_bf<16, 80, st_layout::naive>::padding_cols == 0);
}

template <class T, int Rows, int Cols>
void check_without_padding() {
  using wide = st<T, Rows, Cols, st_layout::swizzle_128>;
  using plain = st<T, Rows, Cols>;
  static_assert(is_padded<wide, plain::chunks, 0> && sizeof(wide) == sizeof(plain));
  for (int i = 0; i < wide::num_elements; ++i) {
    CHECK_EQUAL(wide::index(i / Cols, i % Cols), plain::index(i / Cols, i % Cols));
  }
}

TEST(whole_chunks_of_128_bytes_are_those_of_swizzle) {
  check_without_padding<bf16, 16, 64>();
  check_without_padding<half, 48, 128>();
  check_without_padding<float, 32, 96>();
}

// Indices move as elements do, where no bit is carried.
TEST(a_moved_index_is_the_index_of_the_moved_element) {
  for_each_shared_tile([&]<class S>() {
    for (const int rows : {1, 2, 4, 8}) {
      for (int i = 0; i < S::num_elements; ++i) {
        const int r = i / S::cols, c = i % S::cols, r0 = r % rows, c0 = c % 8;
        CHECK_EQUAL(detail::moved_index<S>(S::index(r0, c0), r - r0, c - c0), S::index(r, c));
      }
    }
  });
}

// Different words of one bank that `lanes` lanes touch at once, each `bytes` at its index; 1 is
// best.
template <class S, class Index>
int conflicts(int first_lane, int lanes, int bytes, Index index) {
  std::set<int> words[32];
  for (int lane = first_lane; lane < first_lane + lanes; ++lane) {
    const int byte = index(lane) * int(sizeof(typename S::dtype));
    for (int word = byte / 4; word * 4 < byte + bytes; ++word) words[word % 32].insert(word);
  }
  size_t most = 0;
  for (const auto& bank : words) most = std::max(most, bank.size());
  return static_cast<int>(most);
}

template <class R, class S>
void check_conflicts() {
  using namespace kittens::detail;
  constexpr int size = sizeof(typename S::dtype);
  if constexpr (size == 2) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      CHECK_EQUAL(conflicts<S>(matrix * 8, 8, 16, [](int l) { return matrix_row<R, S>(l); }), 1);
    }
  }
  if constexpr (moves_pairs<R, S>) {
    CHECK_EQUAL(conflicts<S>(0, 32, 2 * size, [](int l) { return pair_of_lane<R, S>(l).first; }),
                1);
  } else {
    CHECK_EQUAL(conflicts<S>(0, 32, size, [](int l) { return pair_of_lane<R, S>(l).first; }), 1);
    CHECK_EQUAL(conflicts<S>(0, 32, size, [](int l) { return pair_of_lane<R, S>(l).second; }), 1);
  }
}

TEST(registers_move_without_bank_conflicts) {
  for_each_dtype([&]<class T>() {
    for_each_shape([&]<int Rows, int Cols>() {
      check_conflicts<rt<T, Rows, Cols, rt_layout::row>, st<T, Rows, Cols>>();
      check_conflicts<rt<T, Rows, Cols, rt_layout::col>, st<T, Rows, Cols>>();
    });
    check_conflicts<rt<T, 16, 80, rt_layout::row>, st<T, 16, 80, st_layout::swizzle_128>>();
    check_conflicts<rt<T, 16, 80, rt_layout::col>, st<T, 16, 80, st_layout::swizzle_128>>();
    check_conflicts<rt<T, 32, 16, rt_layout::row>, st<T, 32, 16, st_layout::swizzle_128>>();
    check_conflicts<rt<T, 32, 16, rt_layout::col>, st<T, 32, 16, st_layout::swizzle_128>>();
  });
}

}  // namespace
