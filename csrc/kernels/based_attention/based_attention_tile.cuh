// based_attention: a pass of a kernel, its shared memory and tensors, and the stream of chunks that
// a block works on. (based_attention.cuh, based_attention_generic.cuh)
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/based_attention/based_attention_features.cuh"

namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET {

inline constexpr int kChunk = kBasedChunk;
inline constexpr int kValues = kBasedBlockValues;

// The tensors by what they do in a pass, which has a state of `keys` and `values`, and rows that
// meet it (based_attention.cuh):
//
//   pass      keys  values  row_keys  row_values  gives
//   forward   k     v       q         –           o
//   dq        k     v       q         do          dq, and the rows' factors
//   dk_dv     q     do      k         v           dk, dv; from the last chunk to the first
template <class T, int Pass, bool Outputs>  // a based_attention_pass
struct based_attention_config {
  using type = T;
  static constexpr bool generic = false;  // else for Hopper
  static constexpr auto pass = static_cast<based_attention_pass>(Pass);
  // Else the states at the ends of segments alone.
  static constexpr bool outputs = Outputs;
  static constexpr bool reverse = pass == based_attention_pass::dk_dv;
  static constexpr bool differentiates = Outputs && pass != based_attention_pass::forward;
  static constexpr bool gives_values = Outputs && pass != based_attention_pass::dq;
  static constexpr int threads = 128;
  // The state takes 80 registers a thread; o, scores and features as many as are left. Stages,
  // features, state and outputs are 94 to 98 KiB.
  static constexpr int blocks_per_multiprocessor = 2;
  static constexpr int stages = differentiates ? 2 : 3;

  using key_tile = st<T, kChunk, kKeys>;         // of q and k
  using value_tile = st<T, kChunk, kValues>;     // of v and o
  using feature_tile = st<T, kChunk, kColumns>;  // of the keys
  using state_tile = st<T, kValues, kColumns>;
};

// The same pass for every architecture. Registers and shared memory, of 47 to 73 KiB, say 2 blocks
// a multiprocessor: of gradients, where it has no more than 100 KiB, 1.
template <class T, int Pass, bool Outputs>
struct based_attention_generic_config : based_attention_config<T, Pass, Outputs> {
  static constexpr bool generic = true;
  static constexpr int stages = 2;
};

// What a pass is given, beside the tensors that it reads and writes in tiles.
struct pass_arguments {
  const float* initial_state;  // [B, H, F, V]; or null
  const float* initial_sums;   // [B, H, F]; or null
  float* final_state;
  float* final_sums;
  float* segment_states;  // [segments, B, H, F, V]; or null: one segment
  float* segment_sums;    // [segments, B, H, F]
  float2* factors;  // [B, H, chunks · 64]: what a row of do is multiplied by, and the gradient
                    // of the row's denominator; with `normalize`
  int batch, length, heads, key_width, value_width, features;  // B, S, H, D, V, F
  int segments, segment_chunks;                                // of a sequence; chunks of a segment
  float scale, eps;
  bool normalize, wants_o, wants_key_gradients;
};

template <class Config>
struct based_attention_arguments : pass_arguments {
  tma_sequence_map<typename Config::key_tile> keys, row_keys, key_gradients;
  tma_sequence_map<typename Config::value_tile> values, row_values, o;
};

// A tensor [B, S, H, width], of which the generic kernel reads and writes pieces of 16 bytes.
template <class T>
struct token_rows {
  T* data;
  based_attention_strides strides;
  int width;
};
template <class T>
struct based_attention_generic_arguments : pass_arguments {
  token_rows<T> keys, row_keys, key_gradients, values, row_values, o;
};

template <class Config>
using arguments_of =
    std::conditional_t<Config::generic, based_attention_generic_arguments<typename Config::type>,
                       based_attention_arguments<Config>>;

// Where a column of the features is in a head's state [F, V] in memory, and what takes the op's to
// the kernel's, and back: the root of its weight.
struct alignas(16) column_place {
  int offset;  // of its row, in elements; below 0: it has none
  float root, inverse;
  int unused;

  KITTENS_DEVICE static column_place load(const column_place& from) {
    const int4 words = arch::load_shared(reinterpret_cast<const int4*>(&from));
    column_place place;
    std::memcpy(&place, &words, sizeof(place));
    return place;
  }
  KITTENS_DEVICE void store(column_place& to) const {
    int4 words;
    std::memcpy(&words, this, sizeof(words));
    arch::store_shared(reinterpret_cast<int4*>(&to), words);
  }
};

template <class Config>
struct based_attention_shared {
  static constexpr int kRowStages = Config::outputs ? Config::stages : 1;
  static constexpr int kRowValueStages = Config::differentiates ? Config::stages : 1;
  // What copies write comes first, and then what threads do.
  typename Config::value_tile values[Config::stages];
  typename Config::value_tile row_values[kRowValueStages];
  typename Config::key_tile keys[Config::stages];
  typename Config::key_tile row_keys[kRowStages];
  typename Config::value_tile o;  // on its way out
  typename Config::feature_tile features;
  typename Config::state_tile state;        // before the chunk, weighted, as a product takes it
  typename Config::key_tile key_gradients;  // on its way out
  sv<float, kChunk> factors[2];             // of the chunk's values
  column_place columns[kColumns];
  ring<Config::stages> chunks;
};

// What a block works on: a segment of a head's sequence, and 64 of its values.
struct chunk_stream {
  int batch, head, part, segment;
  int first, count;  // chunks

  KITTENS_DEVICE static chunk_stream of(const pass_arguments& p) {
    int of_all = arch::block_x();
    const auto take = [&](int extent) {
      const int index = of_all % extent;
      of_all /= extent;
      return index;
    };
    chunk_stream s;
    s.part = take((p.value_width + kValues - 1) / kValues);
    s.head = take(p.heads);
    s.segment = take(p.segments);
    s.batch = of_all;
    const int all = (p.length + kChunk - 1) / kChunk;
    s.first = s.segment * p.segment_chunks;
    s.count = all - s.first < p.segment_chunks ? all - s.first : p.segment_chunks;
    return s;
  }
  // The first token of the chunk that comes at this step.
  template <class Config>
  KITTENS_DEVICE int token(int step) const {
    return (Config::reverse ? first + count - 1 - step : first + step) * kChunk;
  }
};

// Where a head's first token is in each tensor. In shared memory, for in registers they are more
// than there is room for.
template <class T>
struct places_of_head {
  T *keys, *row_keys, *key_gradients, *values, *row_values, *o;

  KITTENS_DEVICE void set(const based_attention_generic_arguments<T>& p, const chunk_stream& s) {
    const auto placed = [&](const token_rows<T>& rows) {
      return rows.data + s.batch * rows.strides.batch + s.head * rows.strides.head;
    };
    keys = placed(p.keys);
    row_keys = placed(p.row_keys);
    key_gradients = placed(p.key_gradients);
    values = placed(p.values);
    row_values = placed(p.row_values);
    o = placed(p.o);
  }
};

// The generic kernel's, by what a pass gives. Features of the keys are made in registers.
template <class Config>
struct generic_states_shared {
  typename Config::value_tile values[Config::stages];  // of the forward, then o on its way out
  typename Config::key_tile keys[Config::stages];
  sv<float, kChunk> factors[2];  // of the chunk's values
  column_place columns[kColumns];
  places_of_head<typename Config::type> places;
};
template <class Config>
struct generic_outputs_shared : generic_states_shared<Config> {
  typename Config::key_tile row_keys[Config::stages];
  typename Config::state_tile state;  // as that of Hopper's kernel
};
template <class Config>
struct generic_gradients_shared : generic_outputs_shared<Config> {
  typename Config::value_tile row_values[Config::stages];
  typename Config::value_tile o;  // on its way out
  typename Config::key_tile key_gradients;
};
template <class Config>
using based_attention_generic_shared =
    std::conditional_t<Config::differentiates, generic_gradients_shared<Config>,
                       std::conditional_t<Config::outputs, generic_outputs_shared<Config>,
                                          generic_states_shared<Config>>>;

template <class Config>
using shared_of = std::conditional_t<Config::generic, based_attention_generic_shared<Config>,
                                     based_attention_shared<Config>>;

// 16 rows of a tile as an operand in registers, from `row` and `column` on; Transposed: 16 columns,
// as rows of the operand. The caller fences before TMA overwrites them.
template <bool Transposed, class T, int Rows, int Cols>
KITTENS_DEVICE void load_fragment(uint32_t* words, const st<T, Rows, Cols>& tile, int row,
                                  int column) {
  const int lane = arch::lane_id(), first = lane / 8 % 2 * 8, second = lane / 16 * 8;
  uint32_t loaded[4];
  arch::load_matrix<Transposed>(loaded, &tile(row + (Transposed ? second : first) + lane % 8,
                                              column + (Transposed ? first : second)));
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = loaded[i];
}

}  // namespace thunderkittens::based_attention_kernels::inline KITTENS_TARGET
