"""linear's kernel, lane by lane on the CPU: the list of cases, orders and races."""

import functools

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

SOME = [
    Case((3,), 1000, 300, residual=True),
    Case((11,), 328, 88, FP16, bias=True, activation="swiglu"),
    Case((5,), 1000, 72, norm=1e-6),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", cases.every(), ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = _C.launch_counts()["linear"]
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert _C.launch_counts()["linear"] == before + 2
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs))


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs))


def test_rows_and_columns_do_not_depend_on_their_neighbours():
    """The bits of a row are those of it alone, and those of a column of a shorter weight."""
    x, weight, _, _, norm_weight = cases.make(Case((5,), 520, 300, norm=1e-6))
    with thunderkittens.backend("simulator"):
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
