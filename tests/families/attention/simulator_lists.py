"""Calls of attention in the simulator, of each of its kernels: test_attention_gpu.py's in small."""

import math

from tests.families.attention import cases, heads, layouts
from tests.families.attention.cases import BF16, FP16, Case

LENGTHS = (1, 63, 64, 65, 127, 128, 129, 191, 192, 193)
# Each length with itself, and some where rows and keys differ: few keys, few rows, rows that see no
# key, a block of keys that all rows see.
PAIRS = [
    *((n, n) for n in LENGTHS),
    *((1, 193), (193, 1), (65, 129), (129, 65), (64, 192), (192, 64), (130, 257), (257, 130)),
]
ALL = [
    *cases.rotate(PAIRS),
    *(Case(65, 65, True, layout=x, group=2, batch=2) for x in layouts.LAYOUTS),
    *(Case(20, 40, r == "peaked", head_dim=128, dtype=FP16, regime=r) for r in cases.REGIMES[1:]),
    Case(70, 90, True, group=2, key_heads=3, batch=2),  # more tiles than blocks
    Case(66, 66, scale=0.4),
    *(Case(n, m, n < m, 2, d, value_dim=dv) for n, m, d, dv in heads.BETWEEN_TILES),
    *(Case(20, 40, r == "peaked", head_dim=80, dtype=FP16, regime=r) for r in cases.REGIMES[1:]),
]
RANDOM = cases.random(seed=1, count=64, longest=130, widest=128)
POLICIES = (
    {"policy": "lazy"},
    {"policy": "random", "seed": 1},
    {"policy": "random", "seed": 2},
)
OF_EACH_KIND = [
    Case(193, 193, False, 1, 64, BF16),
    Case(193, 193, True, 1, 128, FP16),
    Case(65, 129, True, 4, 64, BF16),
    Case(70, 200, False, 2, 128, BF16, key_heads=2),
    Case(130, 193, True, 1, 72, BF16),
    Case(70, 193, False, 2, 192, FP16, value_dim=128),
]
# Of the backward: a head dimension, and what is not finite in k or v. Any two of the three meet.
SPOILT_KEYS = [
    (head_dim, "kv"[i], (math.nan, math.inf)[(i + j) % 2])
    for j, head_dim in enumerate((64, 128, 256))
    for i in range(2)
]
