"""linear of 17 to 64 rows, by Hopper's kernel, lane by lane on the CPU."""

import dataclasses
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

PLAIN = [
    Case((33,), 1000, 600, residual=True),
    Case((24,), 328, 88, FP16, bias=True, activation="swiglu"),
    Case((64,), 1000, 72, norm=1e-6),
    Case((17,), 203, 40, weight_layout="wide", x_layout="wide"),
]
SOME = [*PLAIN, *(dataclasses.replace(case, constant=True) for case in PLAIN)]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", cases.many(), ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case)
    before = _C.launch_counts()["linear_rows"]
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert _C.launch_counts()["linear_rows"] == before + 2
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


@pytest.mark.parametrize("case", [c for c in SOME if c.constant], ids=str)
def test_a_constant_weight_changes_no_bit(case):
    inputs = cases.make(case)
    with thunderkittens.backend("simulator"):
        (y,), (want,) = (
            cases.run_case(dataclasses.replace(case, constant=constant), inputs)
            for constant in (True, False)
        )
    assert memory.bits_equal(y, want)


@needs_race_mode
def test_race_mode_sees_a_promise_that_is_broken():
    """The weight is what the kernel in front writes."""
    x, given = (torch.randn(n, 64).bfloat16() for n in (20, 64))
    with thunderkittens.backend("simulator", race=True):
        weight = thunderkittens.linear(x, given)
        with pytest.raises(RuntimeError, match="linear: RACE: (.|\n)*linear_rows<(.|\n)*constant"):
            thunderkittens.linear(x, weight, weight_is_constant=True)
        thunderkittens.linear(x, weight)  # without it


def test_rows_do_not_depend_on_their_neighbours():
    """The bits of a row are the same in any call of 17 to 64 rows."""
    x, weight, _, _, norm_weight = cases.make(Case((57,), 520, 300, norm=1e-6))
    with thunderkittens.backend("simulator"):
        for norm in (None, (norm_weight, 1e-6)):
            linear = functools.partial(thunderkittens.linear, weight=weight, norm=norm)
            assert memory.bits_equal(linear(x[7:27]), linear(x)[7:27])


def test_without_a_kernel_for_them_rows_are_torchs_without_a_word():
    x, weight = torch.randn(cases.FEW + 1, 64).bfloat16(), torch.randn(8, 64).bfloat16()
    want = torch.nn.functional.linear(x, weight)
    with thunderkittens.backend("simulator"):
        assert thunderkittens.explain("linear", x, weight).backend == "simulator"
    with thunderkittens.backend("simulator", kernel="generic"):
        assert thunderkittens.explain("linear", x[1:], weight).backend == "simulator"
        found = thunderkittens.explain("linear", x, weight)
        assert found.backend == "torch"
        assert found.reason.startswith("17 rows are more than 16")
        assert memory.bits_equal(thunderkittens.linear(x, weight), want)  # strict: raises if not
