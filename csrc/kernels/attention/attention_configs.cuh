// Which kernels attention's forward has, and which heads each takes: data, from which
// attention_sm90.cu makes the kernels and chooses among them. Figures: benchmarks/attention.md.
#pragma once

#include <kittens.cuh>

#include <cstdint>

namespace thunderkittens::attention_kernels::inline KITTENS_TARGET {

// How p is computed (attention_forward.cuh). Above head dimension 128 the products take so much
// longer than the softmax that the online maximum costs little; and the ones of a fixed reference
// have no place beside v.
enum class softmax_reference { fixed, online };

struct attention_form {
  const char* name;
  int head_dim;  // D and Dv are at most this; TMA fills up with zeros
  bool capped;   // whether there is a softcap
  int consumers, consumer_registers, producer_registers;
  int keys;      // of a block
  int q_stages;  // 2: the next tile's queries come while this one is worked on
  softmax_reference reference;

  constexpr bool takes(int64_t width, bool has_softcap) const {
    return width <= head_dim && capped == has_softcap;
  }
};

// The first that takes a call is launched. The accumulators o and s and the operand p take 160
// registers a thread at head dimension 128, 128 at 64: room for two and three consumers, but for
// two alone with a softcap, which computes in more. (In large heads the last 16 keys of a block
// would take those registers.)
// clang-format off
inline constexpr attention_form kForwardForms[] = {
    // name        head_dim capped consumers, registers keys q_stages
    {"64",              64, false,  3, 160, 32,         128,  2, softmax_reference::fixed},
    {"96",              96, false,  2, 240, 24,         128,  2, softmax_reference::fixed},
    {"128",            128, false,  2, 240, 24,         128,  2, softmax_reference::fixed},
    {"192",            192, false,  2, 240, 24,         112,  1, softmax_reference::online},
    {"256",            256, false,  2, 240, 24,          80,  1, softmax_reference::online},
    {"64, capped",      64, true,   2, 240, 24,         128,  2, softmax_reference::fixed},
    {"96, capped",      96, true,   2, 240, 24,         128,  2, softmax_reference::fixed},
    {"128, capped",    128, true,   2, 240, 24,         128,  2, softmax_reference::fixed},
    {"192, capped",    192, true,   2, 240, 24,          96,  1, softmax_reference::online},
    {"256, capped",    256, true,   2, 240, 24,          64,  1, softmax_reference::online},
};
// clang-format on
inline constexpr int kForwardFormCount = sizeof(kForwardForms) / sizeof(kForwardForms[0]);

constexpr const attention_form& forward_form(int64_t width, bool capped) {
  for (const attention_form& form : kForwardForms) {
    if (form.takes(width, capped)) return form;
  }
  return kForwardForms[kForwardFormCount - 1];
}

}  // namespace thunderkittens::attention_kernels::inline KITTENS_TARGET
