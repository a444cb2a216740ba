// Which kernels attention's forward has, and which heads each takes: data, from which
// attention_sm90.cu and attention_generic.cu make the kernels and choose among them. Figures of the
// former: benchmarks/attention.md.
#pragma once

#include <kittens.cuh>

#include <cstdint>

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// How p is computed (attention_forward.cuh). Where v has more than 128 columns the products take so
// much longer than the softmax that the online maximum costs little; and the ones of a fixed
// reference have no place beside v.
enum class softmax_reference { fixed, online };

struct attention_form {
  const char* name;
  int head_dim, value_dim;  // D and Dv are at most these; other columns are zeros
  bool capped;              // whether there is a softcap
  int consumers, consumer_registers, producer_registers;
  int keys;      // of a block
  int q_stages;  // 2: the next tile's queries come while this one is worked on
  softmax_reference reference;

  constexpr bool takes(int64_t width, int64_t value_width, bool has_softcap) const {
    return width <= head_dim && value_width <= value_dim && capped == has_softcap;
  }
};

// The first that takes a call is launched. The accumulators o and s and the operand p take 160
// registers a thread at head dimension 128, 128 at 64: room for two and three consumers, but for
// two alone with a softcap, which computes in more. (In large heads the last 16 keys of a block
// would take those registers.)
// clang-format off
inline constexpr attention_form kForwardForms[] = {
    // name           head_dim, value_dim capped consumers, registers keys q_stages
    {"64",             64,  64, false,  3, 160, 32,         128,  2, softmax_reference::fixed},
    {"80",             80,  80, false,  2, 240, 24,         128,  2, softmax_reference::fixed},
    {"96",             96,  96, false,  2, 240, 24,         128,  2, softmax_reference::fixed},
    {"128",           128, 128, false,  2, 240, 24,         128,  2, softmax_reference::fixed},
    {"192, 128",      192, 128, false,  2, 240, 24,          96,  1, softmax_reference::fixed},
    {"192",           192, 192, false,  2, 240, 24,         112,  1, softmax_reference::online},
    {"256",           256, 256, false,  2, 240, 24,          80,  1, softmax_reference::online},
    {"64, capped",     64,  64, true,   2, 240, 24,         128,  2, softmax_reference::fixed},
    {"96, capped",     96,  96, true,   2, 240, 24,         128,  2, softmax_reference::fixed},
    {"128, capped",   128, 128, true,   2, 240, 24,         128,  2, softmax_reference::fixed},
    {"192, capped",   192, 192, true,   2, 240, 24,          96,  1, softmax_reference::online},
    {"256, capped",   256, 256, true,   2, 240, 24,          64,  1, softmax_reference::online},
};
// clang-format on
inline constexpr int kForwardFormCount = sizeof(kForwardForms) / sizeof(kForwardForms[0]);

constexpr const attention_form& forward_form(int64_t width, int64_t value_width, bool capped) {
  for (const attention_form& form : kForwardForms) {
    if (form.takes(width, value_width, capped)) return form;
  }
  return kForwardForms[kForwardFormCount - 1];
}

// Which heads each kernel of the backward takes (attention_backward.cuh); how it works follows from
// them there. The first one is launched.
struct attention_backward_form {
  int head_dim, value_dim;  // D and Dv are at most these; other columns are zeros
  bool capped;              // whether there is one with a softcap, too

  constexpr bool takes(int64_t width, int64_t value_width, bool has_softcap) const {
    return width <= head_dim && value_width <= value_dim && (capped || !has_softcap);
  }
};

// clang-format off
inline constexpr attention_backward_form kBackwardForms[] = {
    // head_dim, value_dim capped
    { 64,  64, true},
    { 80,  80, false},
    { 96,  96, false},
    {128, 128, true},
    {192, 128, false},
    {192, 192, false},
    {256, 256, true},
};
// clang-format on
inline constexpr int kBackwardFormCount = sizeof(kBackwardForms) / sizeof(kBackwardForms[0]);

// The forms of the generic kernel (attention_generic.cuh). Four warps have `row_tiles` · 16 queries
// each. With two of them, keys and values are read from shared memory half as often. Up to head
// dimension 128 two blocks share a multiprocessor of sm_80 or sm_90.
struct attention_generic_form {
  const char* name;
  int head_dim;             // D and Dv are at most this; columns that are not there are zeros
  int row_tiles;            // of a warp, of 16 rows each
  int keys;                 // of a block
  bool queries_are_loaded;  // once, into registers; else from shared memory for each block

  constexpr bool takes(int64_t width) const { return width <= head_dim; }
};

// clang-format off
inline constexpr attention_generic_form kGenericForms[] = {
    // name  head_dim row_tiles keys queries_are_loaded
    {"64",         64,        2,  64, true},
    {"96",         96,        2,  64, false},
    {"128",       128,        2,  48, false},
    {"256",       256,        1,  32, false},
};
// clang-format on
inline constexpr int kGenericFormCount = sizeof(kGenericForms) / sizeof(kGenericForms[0]);

// The forms of the backward's generic kernel (attention_backward_generic.cuh), of the widths that
// attention_backward_layout has. A warp with 32 keys reads shared memory less than one with 16,
// and, where dk and dv are then too large for its registers, shares them with others; that takes
// more shared memory than the architectures of 99 KB a block have.
struct attention_backward_generic_form {
  int head_dim;         // D and Dv are at most this; columns that are not there are zeros
  int shared_kb;        // that a block may have, at least
  int keys;             // of a tile
  int rows;             // of a block of queries
  int key_tiles;        // of a warp, of 16 keys each
  int sharers;          // warps that share their keys
  int stages;           // of blocks of queries
  int gradient_stages;  // … and of what do is there
  bool halves;          // half of the warps compute s and dv, the others dp and dk,
  bool waits;           // … and dq's other half together with the next block's dp
};

// clang-format off
inline constexpr attention_backward_generic_form kBackwardGenericForms[] = {
    // head_dim shared_kb keys rows key_tiles sharers stages gradient_stages halves waits
    {        64,      163, 128,  32,        2,      1,     2,              2, false, false},
    {        64,       99, 128,  64,        1,      1,     2,              1, false, false},
    {       128,      163, 128,  64,        2,      2,     2,              2, false, false},
    {       128,       99, 128,  32,        1,      1,     2,              1, false, false},
    {       256,      227,  64,  64,        2,      2,     2,              2,  true,  true},
    {       256,      163,  64,  64,        2,      2,     1,              1,  true, false},
    {       256,       99,  32,  32,        1,      2,     1,              1, false, false},
};
// clang-format on

// The form for a block that may have so much shared memory, of `head_dim`.
constexpr const attention_backward_generic_form& backward_generic_form(int head_dim,
                                                                       int shared_kb) {
  const attention_backward_generic_form* form = kBackwardGenericForms;
  while (form->head_dim < head_dim || form->shared_kb > shared_kb) ++form;
  return *form;
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
