"""Which of gradient_checks.py is asked of which calls: the same on the CPU, in the simulator and on
a GPU, where there is more of each."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

from tests.families.attention import cases
from tests.families.attention import gradient_checks as checks
from tests.families.attention.cases import BF16, FP16, FP32, Case

# Around the blocks of 64 and 128 rows and of 128 keys, and past the second one.
EDGES = (1, 63, 64, 65, 127, 128, 129, 255, 257)


def outliers() -> list[tuple[str, float]]:
    """In whose rows, and how much larger than the others."""
    return list(itertools.product(("v", "dout", "k"), (10.0, 100.0, 1000.0)))


@dataclasses.dataclass(frozen=True)
class Check:
    """One check of one call."""

    function: Callable[..., None]
    case: Case
    arguments: tuple = ()

    def __str__(self) -> str:
        name = self.function.__name__.removeprefix("check_")
        return "-".join([name, str(self.case), *map(str, self.arguments)]).replace("torch.", "")

    def __call__(self, device: str) -> None:
        self.function(self.case, device, *self.arguments)


def numbers(some: list[Case]) -> list[Check]:
    """Numbers, with and without a gradient of lse by turns."""
    turns = itertools.cycle((False, True, True))
    return [Check(checks.check_numbers, case, (next(turns),)) for case in some]


def lengths(pairs: list[tuple[int, int]]) -> list[Case]:
    """Full and causal at each pair of rows and keys; dtypes, groups and head dimensions by turns.

    Half of them have other heads than the kernels' tiles.
    """
    kinds = itertools.cycle(itertools.product((1, 3), (64, 128, 40, 120, 72, 96), (BF16, FP16)))
    return [Case(n, m, causal, *next(kinds)) for causal in (False, True) for n, m in pairs]


def options(n: int, m: int) -> list[Case]:
    """One of each option, and of some that meet, with rows and keys of about these numbers."""
    packed = {"cu_seqlens_q": (0, n // 3, n // 3, n), "cu_seqlens_k": (0, m // 2, m // 2 + 1, m)}
    inner = {"cu_seqlens_q": (2, n // 2, n - 1), "cu_seqlens_k": (2, m // 3, m - 3)}
    return [
        Case(n, m, regime="peaked"),
        Case(n, m, True, head_dim=128, dtype=FP16, regime="peaked"),
        Case(n, m, regime="tiny"),
        Case(n, m, True, scale=1.0),
        Case(n, m, group=4, key_heads=2, batch=2),
        Case(n, m, True, group=8, head_dim=128),
        Case(n, m, window_left=n // 3, window_right=5),
        Case(n, m, True, 2, 128, window_left=40),
        Case(n, m, window_right=0, window_left=0, dtype=FP16),
        Case(n, m, softcap=2.0),
        Case(n, m, True, 2, 128, FP16, softcap=20.0, regime="peaked"),
        Case(n, m, sinks=FP32),
        Case(n, m, True, 2, 128, sinks=BF16, window_left=30),
        Case(n, m, value_dim=32),
        Case(n, m, True, 2, 64, FP16, value_dim=128),
        Case(n, m, True, 2, 192, value_dim=128),
        Case(n, m, False, 2, 160, FP16, value_dim=192, sinks=FP32),
        Case(n, m, True, 2, 80, FP16, window_left=40, sinks=FP32),
        Case(n, m, True, **packed),
        Case(n, m, False, 2, 128, FP16, 2, sinks=FP32, **inner),
    ]


def every_kind(n: int, m: int, few_of_each: bool = False) -> list[Check]:
    """All checks but that of many numbers, with rows and keys of about these numbers.

    Args:
        n: Rows.
        m: Keys.
        few_of_each: Whether of three things that meet only pairs do.
    """
    plain, causal = Case(n, m, group=2, batch=2), Case(n, m, True, head_dim=128, dtype=FP16)
    few = Case(33, 40, True, 2, key_heads=2, batch=2)
    heads = [Case(150, 150, True, key_heads=3), Case(n, m, head_dim=128, key_heads=3)]
    spoilt = itertools.product(("q", "k", "v", "dout"), (math.nan, math.inf))
    not_finite = [(case, *where) for case, where in itertools.product(heads, spoilt)]
    wide = dataclasses.replace(causal, dtype=BF16)  # powers of two that float16 has not
    wide_full = Case(n, m, head_dim=128, dtype=FP16)
    powers = ((plain, "dout", 20), (plain, "dout", -75), (plain, "dout", 70), (wide, "dout", 5))
    far = ((plain, "v", 70), (plain, "v", -75), (plain, "k", 40), (wide, "v", -3))
    large = list(itertools.product((plain, wide), outliers()))
    needs = [few, Case(n, m, True, 2, 128), dataclasses.replace(few, sinks=FP32)]
    if few_of_each:
        # Of each tensor NaN in one of the heads, and infinity in the other.
        pairs = (0, 3, 4, 7, 9, 10, 13, 14)
        not_finite, large, needs = [not_finite[i] for i in pairs], large[::4], needs[1:]
    return [
        *(Check(checks.check_outliers, case, where) for case, where in large),
        *(Check(checks.check_largest, c, (by,)) for c in (plain, wide_full) for by in (1.0, 500.0)),
        *(Check(checks.check_powers, case, tuple(where)) for case, *where in (*powers, *far)),
        *(Check(checks.check_zero, case, (lse,)) for case in (plain, causal) for lse in (0, 1)),
        *(Check(checks.check_zero_rows, case) for case in (plain, causal)),
        *(Check(checks.check_blind_rows, Case(m, n, True, 2, d)) for d in (64, 128)),
        Check(checks.check_blind_rows, Case(300, 20, True, dtype=FP16)),  # whole blocks of rows
        *(Check(checks.check_not_finite, case, tuple(where)) for case, *where in not_finite),
        *(Check(checks.check_needs, case) for case in needs),
        *(Check(checks.check_parts_alone, dataclasses.replace(few, head_dim=d)) for d in (64, 128)),
        Check(checks.check_incoming_layouts, dataclasses.replace(few, key_heads=1)),
        Check(checks.check_layouts, Case(40, 40, True, key_heads=2, batch=2)),
        Check(checks.check_layouts, Case(1, 1)),
        *(Check(checks.check_checkpointed, few, (reentrant,)) for reentrant in (False, True)),
        *(Check(checks.check_autocast, few, (dtype,)) for dtype in (BF16, FP16)),
    ]


def random_cases(seed: int, count: int, longest: int, widest: int) -> list[Case]:
    """cases.random, of those that fuzz.Shape can say."""
    drawn = cases.random(seed, count, longest, widest)
    return [
        c
        for c in drawn
        if c.cu_seqlens_q[:1] == c.cu_seqlens_k[:1]
        and len(c.cu_seqlens_q) != 1
        and 0 not in sizes(c)
    ]


def sizes(case: Case) -> tuple[int, ...]:
    return (case.rows, case.keys, case.batch)
