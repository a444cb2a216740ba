// attention_decode: rows, of which warps and blocks have parts, and the output.
#pragma once

#include "kernels/attention_decode/attention_decode_configs.cuh"
#include "kernels/attention_decode/attention_decode_work.cuh"

namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET {

// What has been added up of one row. In shared memory rows lie 8 banks apart.
template <class Config>
struct decode_record {
  float o[Config::columns];  // Σ 2^(s − m) v
  float2 sums;               // m and Σ 2^(s − m)
  float unused[kDecodeRecordFloats - 2];
};

// What one warp has of half the rows of an item, or of all if they are few.
template <class Config>
struct decode_part {
  KITTENS_DEVICE decode_record<Config>& row(int i) { return records[place(i)]; }
  KITTENS_DEVICE const decode_record<Config>& row(int i) const { return records[place(i)]; }

 private:
  // Of few rows lane t of four has 2 t and 2 t + 1, and writes the even ones at once: those lie in
  // banks of their own.
  KITTENS_DEVICE static int place(int row) {
    return Config::few_rows ? row / 2 + row % 2 * (kHalfRows / 2) : row;
  }

  decode_record<Config> records[kHalfRows];
  float4 apart;  // parts lie 4 banks apart: the sums of a row are read at once
};

// What one warp adds to the scores of a tile of keys, which its slice of the columns gives, and to
// those of the tile before, which the other one may still be reading.
template <class Config>
struct decode_scores {
  float4 tiles[2][kKeys / kBase * Config::halves][kWarp];
  float4 apart;  // as above
};

// Where a warp leaves what others add to theirs: of slices at each tile, of all of a team at an
// item's end.
template <class Config>
union decode_exchange {
  decode_scores<Config> scores;
  decode_part<Config> part;
};

KITTENS_DEVICE float without_infinity(float m) { return m == -INFINITY ? 0.0f : m; }

// The first of this warp's slice of a head.
template <class Config>
KITTENS_DEVICE int first_column() {
  return Config::slices == 1 ? 0 : team_place<Config::warps>::of_turn() * Config::columns;
}
// This warp's key head of an item's.
template <class Config>
KITTENS_DEVICE int key_head_of(int item) {
  return Config::heads == 1 ? item : item * Config::heads + team_place<Config::warps>::of_turn();
}

// A row of the output: token × head of the group, of one key head.
struct output_row {
  KITTENS_DEVICE output_row(const decode_arguments& p, int b, int key_head, int row)
      : p(p), b(b), key_head(key_head) {
    token = p.by_group.of(row);
    head = key_head * p.group + row - token * p.group;
  }

  // What o is multiplied by: a sink has a part of the sum, and no value.
  KITTENS_DEVICE float factor(float m, float l) const {
    float scale = 1;
    if (p.tensors.sinks != nullptr) {
      const float sink = arch::load_global(p.tensors.sinks + head) * kLog2e;
      const float most = without_infinity(fmaxf(m, sink));
      scale = arch::exp2_approx(m - most);
      l = fmaf(l, scale, arch::exp2_approx(sink - most));
    }
    if (p.tensors.v_scale != nullptr) scale *= arch::load_global(p.tensors.v_scale + key_head);
    return l == 0 ? 0.0f : scale / l;  // 0: no key
  }
  template <class T>
  KITTENS_DEVICE T* data() const {
    return static_cast<T*>(p.tensors.o) + b * p.o_strides.batch + token * p.o_strides.token +
           head * p.o_strides.head;
  }

  const decode_arguments& p;
  int b, key_head, token, head;
};

}  // namespace thunderkittens::attention_decode_kernels::inline KITTENS_TARGET
