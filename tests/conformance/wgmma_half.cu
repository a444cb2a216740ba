// arch/wgmma.cuh for half: wgmma, wgmma_fence, wgmma_commit, wgmma_wait, wgmma_hold and
// matrix_descriptor, by the kernel `product` of tests/kittens/arch/wgmma_cases.h.
#include "wgmma_records.h"

using namespace kittens::testing;

namespace {

using element = __half;

TEST(forms) { record_forms<element>(); }
TEST(widths) { record_widths<element>(); }
TEST(rounded) { record_rounded<element>(); }
TEST(truncation) { record_truncation<element>(); }
TEST(specials) { record_specials<element>(); }

}  // namespace
