"""What linear_attention computes in the simulator and on a GPU, by either of its kernels."""

from tests.families.linear_attention import cases
from tests.families.linear_attention.cases import FP16, Case

COMMON = [
    *cases.lengths(),
    *cases.widths(),
    *cases.options(),
    *cases.layouts(),
    *cases.packed(),
]
# Segments: fewer heads than multiprocessors, and chunks for several.
SEGMENTS = [
    Case(length=1030, heads=1, key_heads=1),
    Case(length=1200, heads=1, key_heads=1, ends=(0, 100, 1000, 1200)),
    Case(length=1090, heads=2, key_heads=1, key_width=128, value_width=128, dtype=FP16),
]
LARGE = [
    Case(4, 1000, 16, 16, 128, 128),
    Case(1, 4099, 4, 2, 128, 128, dtype=FP16),
    Case(2, 2050, 8, 8, 64, 64, decay="head", strength=0.01),
    Case(1, 9000, 4, 4, 64, 64, ends=(0, 5000, 5001, 9000)),
]
# For each policy, and race mode.
SOME = [
    Case(length=200),
    Case(length=100, key_width=128, value_width=128),
    Case(length=1030, heads=1, key_heads=1, key_width=16, value_width=16),
]
