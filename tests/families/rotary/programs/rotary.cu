// The kernel that the mutants change: small blocks and two heads a thread, so that few heads take
// several steps and few tokens several blocks. In two of the forms blocks share a token's heads.
#include "rotary.h"

#include "kernels/rotary/rotary.cuh"
#include "kittens/host/launch.cuh"

using namespace thunderkittens;
using namespace thunderkittens::rotary_kernels;
using kittens::host::launch;

namespace {

constexpr int kHeads = 2, kSlots = 2, kTokens = 2;

template <class T, int Run, bool Interleaved>
void launch_form(const rotary_params& p, int parts = 1) {
  using config = rotary_config<T, Run, Interleaved, kHeads>;
  const int rotated = p.rotated / (2 * Run), pair = 2 * Run;
  const int units = rotated + (p.in_place ? 0 : (p.width - p.rotated + pair - 1) / pair);
  const int chunks = (p.tokens + kTokens - 1) / kTokens;
  const int warps = (kTokens * kSlots * units + kWarp - 1) / kWarp;
  launch(rotary<config>, {{p.batch * chunks, parts}, {warps * kWarp}}, nullptr, p,
         {rotated, small_divisor(units), small_divisor(kSlots), kTokens, chunks});
}

}  // namespace

void run_rotary(rotary_form form, const rotary_params& p) {
  switch (form) {
    case rotary_form::halves: return launch_form<bf16, 8, false>(p);
    case rotary_form::neighbours: return launch_form<bf16, 8, true>(p, 2);
    case rotary_form::neighbours_of_4_bytes: return launch_form<bf16, 2, true>(p);
    case rotary_form::single_halves: return launch_form<float, 1, false>(p, 3);
    case rotary_form::single_neighbours: return launch_form<float, 1, true>(p);
  }
}
