// arch/wgmma.cuh for bf16: every width, form, order and swizzle of the operands, exactly.
#include "wgmma_cases.h"

using namespace kittens;
using arch::major;
using testing::check_widths;

namespace {

using element = __nv_bfloat16;

TEST(both_operands_k_major) { check_widths<element, false, major::k, major::k>(); }
TEST(a_mn_major) { check_widths<element, false, major::mn, major::k>(); }
TEST(b_mn_major) { check_widths<element, false, major::k, major::mn>(); }
TEST(both_operands_mn_major) { check_widths<element, false, major::mn, major::mn>(); }
TEST(a_in_registers) { check_widths<element, true, major::k, major::k>(); }
TEST(a_in_registers_b_mn_major) { check_widths<element, true, major::k, major::mn>(); }

}  // namespace
