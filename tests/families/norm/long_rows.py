"""Long and medium rows, several of which are on their way at once in the norms' backward."""

import dataclasses
import itertools

from tests.families.norm import cases as norm_cases
from tests.families.norm import rms_add_cases
from tests.families.norm.cases import BF16, FP16, FP32
from tests.families.norm.rms_add_cases import ADDS, OPS
from thunderkittens.testing import memory

WIDTHS = (
    *((760, BF16), (1096, FP16)),
    *((2056, BF16), (3000, FP16), (8192, BF16), (4100, FP32), (5120, FP32)),
)
DROPPED = (1096, 3000)  # the widths with dropout
# Their numbers of rows follow from the device.
CASES = [
    *(norm_cases.Case(w, (), d, d, d) for w, d in WIDTHS),
    *(
        rms_add_cases.Case(op, w, (), d, d, d, p=0.3 if op in ADDS and w in DROPPED else 0.0)
        for op, (w, d) in itertools.product(OPS, WIDTHS)
    ),
    *(rms_add_cases.Case(op, 4104, (), BF16, FP32, FP32, p=0.3) for op in ADDS),
    *(rms_add_cases.Case(op, 776, (), BF16, FP32, BF16, dsum=False) for op in ADDS),
    *(rms_add_cases.Case(op, 6144, (), BF16, BF16, FP32, dsum=False) for op in ADDS),
]


def module_of(case):
    """The one that makes, runs and checks it."""
    return norm_cases if isinstance(case, norm_cases.Case) else rms_add_cases


def blocks(width: int, multiprocessors: int) -> int:
    """How many the backward has, where there are rows enough."""
    return multiprocessors * (2 if width <= 4096 else 1)


def rows_at_once(width: int) -> int:
    """On how many a block works at a time."""
    return max(1, 8 // -(width // -512))


def rows_of_a_group(width: int) -> int:
    """As many as the kernel needs that the case is about."""
    return 16 if width < 2048 else 3


def with_rows(case, multiprocessors: int):
    """The case with some rows for a block, or for each of its groups."""
    places = blocks(case.width, multiprocessors) * rows_at_once(case.width)
    return dataclasses.replace(case, leading=(rows_of_a_group(case.width) * places + 1,))


def check_same_bits(case, multiprocessors: int, device: str) -> None:
    """Asserts that rows which come first of many have the bits that they have alone.

    Alone, they are few, and another kernel takes them.
    """
    cases = module_of(case)
    case = with_rows(case, multiprocessors)
    rows = blocks(case.width, multiprocessors)
    inputs = cases.make(case, device)
    first = [t if t is None or t.dim() == 1 else t[:rows] for t in inputs]
    results = zip(cases.run_case(case, first), cases.run_case(case, inputs), strict=True)
    for alone, among in results:
        if alone is not None and alone.dim() > 1:
            assert memory.bits_equal(alone, among[: len(alone)])
