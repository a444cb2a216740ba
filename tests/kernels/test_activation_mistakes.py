"""Mistakes of arithmetic and of places, planted in the activations' kernels: each must be found.

Nothing is shared between their threads, so there is no synchronisation to get wrong: what is wrong
shows in the numbers, or as an access outside of a tensor.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from build_tools.settings import BuildError
from tests.ahead import called_ahead
from tests.kernels import planted
from tests.kernels.planted import Mistake
from tests.mutation import targets
from tests.mutation.bench import Bench, Verdict

in_kernel = partial(Mistake, file="kernels/activation/elementwise.cuh")
in_functions = partial(Mistake, file="kernels/activation/functions.cuh")

WRONG = r"^y:\d+: is "

MISTAKES = (
    in_kernel("all_slices_are_the_first", ".c = slice - row * p.slices", ".c = 0", WRONG),
    in_kernel(
        "rows_are_read_as_if_contiguous", "columns, p.stride[i])", "columns, p.width)", WRONG
    ),
    in_kernel(
        "runs_ignore_where_the_output_starts",
        "kRun + (-(at.r * p.width) & (kRun - 1))",
        "kRun",
        r"store_global by thread \d+: .*aligned",
    ),
    in_kernel(
        "the_first_run_has_nothing_before_it",
        "kRun + (-(at.r * p.width) & (kRun - 1))",
        "(-(at.r * p.width) & (kRun - 1))",
        r"before the start of a buffer|^y:0: is nan",
    ),
    in_kernel(
        "the_last_run_has_nothing_behind_it",
        "p.width - head - kRun",
        "p.width - head",
        r"past the end of a buffer",
    ),
    in_kernel(
        "single_elements_are_left_out", "p.width - first, {.r = at.r}", "0, {.r = at.r}", WRONG
    ),
    in_kernel(
        "the_last_elements_are_those_after_the_first",
        "arch::lane_id() < head ? 0 : in_runs",
        "0",
        WRONG,
    ),
    in_kernel(
        "gradients_change_places",
        "out[1] = in[0] * f.value",
        "out[1] = in[0] * f.slope",
        r"^dup:\d+: is ",
    ),
    in_kernel(
        "up_is_left_out",
        "out[0] = F::at(in[0]).value * in[1];",
        "out[0] = F::at(in[0]).value;",
        WRONG,
    ),
    in_kernel(
        "what_is_not_wanted_is_written",
        "if (p.out[o] == nullptr) continue;",
        "",
        r"signal|address|outside|crash|ends",
    ),
    in_functions("sigma_is_mirrored", "return x < 0.0f ?", "return x > 0.0f ?", WRONG),
    in_functions(
        "slopes_are_taken_far_out",
        "fminf(square, kSaturated)",
        "fmaxf(square, kSaturated)",
        r"^dgate:\d+: is ",
    ),
    in_functions(
        "the_exponential_grows",
        "return arch::exp2_approx(x * (-rate * kLog2e));",
        "return arch::exp2_approx(x * (rate * kLog2e));",
        WRONG,
    ),
    in_functions(
        "the_tail_loses_its_polynomials_order",
        "sum = fmaf(sum, t, coefficients)",
        "sum = fmaf(coefficients, t, sum)",
        WRONG,
    ),
)


@pytest.fixture(scope="module")
def bench() -> Bench:
    try:
        return Bench([targets.ACTIVATION])
    except BuildError as reason:
        if "headers" not in str(reason):
            raise
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def judge(request, bench: Bench) -> Iterator[Callable[[Mistake], Verdict]]:
    with called_ahead(request, partial(planted.judge, bench), "mistake") as ahead:
        yield ahead


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_found(judge: Callable[[Mistake], Verdict], mistake: Mistake):
    verdict = judge(mistake)
    assert verdict.noticed, f"{mistake.name}: {verdict}"
    assert re.search(mistake.found_as, verdict.said), f"{mistake.name}: {verdict}"
