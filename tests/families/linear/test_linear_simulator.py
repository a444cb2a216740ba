"""linear's kernels, those for Hopper and the generic one, lane by lane on the CPU."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterable

import pytest
import torch

import thunderkittens
from tests.families.linear import cases
from tests.families.linear.cases import FP16, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory, memory

pytestmark = needs_simulator

PLAIN = [
    Case((3,), 1000, 600, residual=True),
    Case((11,), 328, 88, FP16, bias=True, activation="swiglu"),
    Case((5,), 1000, 72, norm=1e-6),
    Case((9,), 203, 40, weight_layout="wide", x_layout="wide"),
]
MANY = [  # more rows than the generic kernel takes
    Case((33,), 1000, 600, residual=True),
    Case((24,), 328, 88, FP16, bias=True, activation="swiglu"),
    Case((64,), 1000, 72, norm=1e-6),
    Case((17,), 203, 40, weight_layout="wide", x_layout="wide"),
]


def forms(few: Iterable[Case], many: Iterable[Case]) -> list[tuple[Case, str | None]]:
    """Each case with the kernels that take it."""
    return [*itertools.product(few, (None, "generic")), *((case, None) for case in many)]


def with_constant_weight(some: Iterable[Case]) -> list[Case]:
    return [dataclasses.replace(case, constant=True) for case in some]


CONSTANT = forms(with_constant_weight(PLAIN), with_constant_weight(MANY))
SOME = [*forms(PLAIN, MANY), *CONSTANT]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(params=[None, "generic"], ids=["specialised", "generic"])
def kernel(request) -> str | None:
    return request.param


@pytest.mark.parametrize(("case", "kernel"), forms(cases.every(), cases.many()), ids=str)
def test_against_float64(case, kernel):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    launched = cases.launched(case)
    before = _C.launch_counts()[launched]
    with thunderkittens.backend("simulator", kernel=kernel):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert _C.launch_counts()[launched] == before + 2
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize(("case", "kernel"), SOME, ids=str)
def test_policies_agree(case, kernel):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs), kernel=kernel)


@needs_race_mode
@pytest.mark.parametrize(("case", "kernel"), SOME, ids=str)
def test_no_races(case, kernel):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs), kernel=kernel)


@pytest.mark.parametrize(("case", "kernel"), CONSTANT, ids=str)
def test_a_constant_weight_changes_no_bit(case, kernel):
    inputs = cases.make(case)
    with thunderkittens.backend("simulator", kernel=kernel):
        (y,), (want,) = (
            cases.run_case(dataclasses.replace(case, constant=constant), inputs)
            for constant in (True, False)
        )
    assert memory.bits_equal(y, want)


def chain(constant: bool) -> torch.Tensor:
    """Products of which each one's x is what the one in front of it writes."""
    y, *weights = (torch.randn(n, 72).bfloat16() / 8 for n in (3, 72, 72))
    for weight in weights:
        y = thunderkittens.linear(y, weight, residual=y, weight_is_constant=constant)
    return y


def test_x_is_what_the_kernel_in_front_writes(kernel):
    for options in ({}, {"policy": "lazy"}, {"policy": "random", "seed": 3}):
        with thunderkittens.backend("simulator", kernel=kernel, **options):
            results = []
            for constant in (False, True):
                torch.manual_seed(0)
                results.append(chain(constant))
        assert memory.bits_equal(*results)


@needs_race_mode
def test_race_mode_sees_a_promise_that_is_broken(kernel):
    """The weight is what the kernel in front writes."""
    x, given, other = (torch.randn(n, 64).bfloat16() for n in (16, 64, 8))
    linear = functools.partial(thunderkittens.linear, weight_is_constant=True)
    name = "linear_generic" if kernel else "linear"
    with thunderkittens.backend("simulator", kernel=kernel, race=True):
        weight = thunderkittens.linear(x, given)
        with pytest.raises(RuntimeError) as refused:
            linear(x, weight)
        want = thunderkittens.linear(x, weight)  # without it
        weight = thunderkittens.linear(x, given)
        linear(x, other)  # of another weight; and a kernel in between
        assert memory.bits_equal(linear(x, weight), want)
        chain(constant=True)
    report = str(refused.value)
    assert report.startswith("linear: RACE: ")
    assert f"{name}<" in report
    assert "of_constant_weight<" in report
    assert "constant[0], 2048 bytes, is written by no kernel that it may overlap; " in report
    assert "the kernel in front of it, writes 2048 of them, from offset 0 on" in report
    assert "missing: another kernel between the two" in report


def test_rows_and_columns_do_not_depend_on_their_neighbours(kernel):
    """The bits of a row are those of it alone, and those of a column of a shorter weight."""
    x, weight, _, _, norm_weight = cases.make(Case((11,), 520, 300, norm=1e-6))
    with thunderkittens.backend("simulator", kernel=kernel):
        for norm in (None, (norm_weight, 1e-6)):
            linear = functools.partial(thunderkittens.linear, norm=norm)
            y = linear(x, weight)
            assert memory.bits_equal(linear(x[2:3], weight), y[2:3])
            assert memory.bits_equal(linear(x, weight[33:90]), y[:, 33:90].contiguous())


def test_float16_with_a_norm_is_torchs():
    x, weight, norm_weight = torch.ones(2, 16).half(), torch.ones(4, 16).half(), torch.ones(16)
    with (
        thunderkittens.backend("simulator"),
        pytest.raises(RuntimeError, match="float16, whose products with the norm's weight may"),
    ):
        thunderkittens.linear(x, weight, norm=(norm_weight.half(), 1e-6))


def test_the_norms_weight_may_be_anywhere():
    x, weight, _, _, norm_weight = cases.make(Case((2,), 72, 40, norm=1e-6))
    moved = torch.cat([norm_weight[:1], norm_weight])[1:]
    assert moved.data_ptr() % 4 == 2
    with thunderkittens.backend("simulator"):
        want = thunderkittens.linear(x, weight, norm=(norm_weight, 1e-6))
        assert memory.bits_equal(thunderkittens.linear(x, weight, norm=(moved, 1e-6)), want)


def test_an_odd_number_of_columns_with_a_norm_is_torchs():
    x, weight, norm_weight = (torch.ones(s).bfloat16() for s in ((2, 9), (1, 9), (9,)))
    with (
        thunderkittens.backend("simulator"),
        pytest.raises(RuntimeError, match="the norm of an odd number of columns, 9, is computed"),
    ):
        thunderkittens.linear(x, weight, norm=(norm_weight, 1e-6))


def test_more_rows_are_torchs_without_a_word():
    x, weight = torch.randn(cases.MOST + 1, 64).bfloat16(), torch.randn(8, 64).bfloat16()
    with thunderkittens.backend("simulator"):
        assert thunderkittens.explain("linear", x[1:], weight).backend == "simulator"
        found = thunderkittens.explain("linear", x, weight)
        assert found.backend == "torch"
        assert found.reason.startswith(f"{cases.MOST + 1} rows are more than {cases.MOST}")
        want = torch.nn.functional.linear(x, weight)
        assert memory.bits_equal(thunderkittens.linear(x, weight), want)  # strict: raises if it is


@pytest.mark.parametrize(
    ("x", "weight", "message"),
    [
        (torch.ones(2, 12), torch.ones(4, 12), "float32 is computed by torch"),
        (torch.ones(2, 12).half(), torch.ones(4, 12).half(), "rows are 24 bytes apart, not a mul"),
        (
            torch.ones(2, 16).half(),
            torch.ones(4 * 16 + 1).half()[1:].view(4, 16),
            "weight cannot be read where it is: its address is not a multiple of 16 bytes",
        ),
        (
            torch.ones(2, 16).half(),
            torch.ones(16, 8).half().T,
            "rows are 2 bytes apart, not a mult",
        ),
    ],
)
def test_fallbacks_say_why(x, weight, message):
    with (
        thunderkittens.backend("simulator"),
        pytest.raises(RuntimeError, match=f"linear: computed by torch: .*{message}"),
    ):
        thunderkittens.linear(x, weight)


@pytest.mark.parametrize(("rows", "columns"), [(1, 512), (16, 512), (7, 2048)])
def test_the_generic_kernel_reads_weights_once_without_bank_conflicts(rows, columns, tmp_path):
    """x once for 16 or 32 columns, and but for the sums no access to shared memory waits."""
    case = Case((rows,), 1024, columns)
    inputs = cases.make(case)
    facts = tmp_path / "facts.json"
    with thunderkittens.backend("simulator", kernel="generic", facts=facts):
        cases.run_case(case, inputs)
    (launch,) = json.loads(facts.read_text())["launches"]
    assert launch["kernel"] == "linear_generic"
    (blocks, _, _), total = launch["grid"], launch["total"]
    passes = blocks * -(-columns // (32 * blocks))
    weight, x, y = (2 * n for n in (1024 * columns, 1024 * rows * passes, rows * columns))
    assert total["global_bytes"] == weight + x + y
    # A sum's two halves of 8 columns are stored by rows of 64 bytes: of 8 rows, twice 4 meet.
    assert total["wavefronts"] - total["passes"] <= passes * 4 * 4 * 8


def test_explain_says_that_it_is_the_generic_kernel():
    x, weight, *_ = cases.make(Case())
    with thunderkittens.backend("simulator", kernel="generic"):
        found = thunderkittens.explain("linear", x, weight)
    assert found.reason == "backend('simulator') is active; it is the generic kernel"
