"""What cross_entropy computes in the simulator, by the kernels for Hopper and the generic ones."""

from tests.families.cross_entropy import cases, far_cases
from tests.families.cross_entropy.cases import BF16, FP16, FP32, Case
from tests.families.cross_entropy.far_cases import Far

WIDE = (2048, 8193, 16385)  # rows of several warps; nine of the last two have a kernel for the loss
RELOADED = 11 * 8192 + 40  # the first chunk of a 16-bit row is loaded twice
STREAMED = [
    *cases.widths(cases.STREAMED, (FP32, BF16), (3,)),
    Case(cases.STREAMED[0], (6,), BF16, ignored=2, label_smoothing=0.1, z_loss=0.01),
    Case(cases.STREAMED[0], (2, 3), BF16, layout="sliced", inplace=True, dloss=0.5),
    Case(cases.STREAMED[0], (2,), BF16, layout="offset", ignored=0, reduction="none"),
    Case(cases.STREAMED[1], (2,), FP16, regime="half masked"),
    Case(RELOADED, (2,), BF16, ignored=0, inplace=True),
    Case(RELOADED // 2 + 1, (5,), FP32),
]
# Rows of several blocks: one row of four, two rows of two.
SPREAD = [
    *cases.widths((4097, 8193, 16391), (FP32, FP16, BF16), (2,)),
    *cases.widths((32768, 65536), (BF16,), (1,)),
    Case(9001, (1,), BF16, ignored=0, label_smoothing=0.1, z_loss=0.01),
    Case(9001, (1,), FP32, ignored=0, narrow=True, reduction="none", label_smoothing=1.0),
    Case(9001, (2,), BF16, layout="sliced", ignored=3, inplace=True, dloss=0.5),
    Case(5001, (2,), FP16, layout="offset", inplace=True, reduction="sum"),
    Case(4200, (2, 1), FP32, layout="permuted", ignored=4),
    *(Case(9001, (1,), BF16, regime=r, ignored=0) for r in cases.REGIMES),
]
ALL = [
    *cases.widths(),
    *cases.widths(WIDE, (FP32, BF16), (9,)),
    *cases.options(24),
    *cases.options(1100, (BF16,))[::2],
    *cases.layouts(16),
    *cases.layouts(9)[::2],
    *cases.regimes(40),
    Case(64, (150,), BF16),
    Case(5, (), FP32, ignored=0),
    *SPREAD,
    *STREAMED,
]
POLICIES = (
    {},
    {"policy": "lazy"},
    {"policy": "random", "seed": 1},
    {"policy": "random", "seed": 2},
)
ORDERS = [
    *cases.widths((9, 1000, 1025, 5000), (BF16,), (9,)),
    Case(9001, (9,), BF16, ignored=1),
    Case(cases.STREAMED[0], (9,), BF16, ignored=1),
    Case(RELOADED, (6,), BF16),
    Case(9, (8,), BF16),  # few rows: the last block adds up what all have stored
    Case(5000, (8,), BF16, reduction="sum"),
    Case(cases.STREAMED[0], (4,), BF16),
    Case(9001, (1,), BF16, ignored=0, label_smoothing=0.1, inplace=True),
    Case(9001, (2,), BF16, ignored=3),
    *(Case(w, (9,), BF16, regime="far") for w in (1000, 5000, 9001)),
    Case(9001, (2,), BF16, regime="far", inplace=True),
    Case(cases.STREAMED[0], (5,), BF16, regime="far", inplace=True),
    Case(RELOADED, (6,), BF16, regime="far", inplace=True),
]
# Far rows that do not fit in registers.
FAR = [
    *far_cases.every(cases.STREAMED[0])[::3],
    *(Far(RELOADED, BF16, m, 6, 0.1, inplace=True) for m in (1e9, 1e38)),
    Far(RELOADED // 2 + 1, FP32, 1e9, 6),
]
