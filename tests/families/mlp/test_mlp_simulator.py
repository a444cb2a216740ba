"""mlp's kernels, lane by lane on the CPU."""

import pytest

import thunderkittens
from tests.families.mlp import cases
from tests.families.mlp.cases import BF16, FP16, Case
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = needs_simulator
# Several tiles both ways, steps of more than a ring; both layouts of the weights.
ORDERED = [
    Case((300,), 136, 264, 72, BF16, "tanh"),
    Case((300,), 136, 264, 456, FP16, "none", transposed=True),
]

LAUNCHES = ("linear_gelu", "linear_gelu_backward")


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", cases.every(), ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernels."""
    inputs = cases.make(case)
    before = _C.launch_counts()
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    after = _C.launch_counts()
    assert all(after[name] == before[name] + 2 for name in LAUNCHES)  # two runs
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", ORDERED, ids=str)
def test_policies_agree(case):
    inputs = cases.make(case)
    check_policies_agree(lambda: cases.run_case(case, inputs))


@needs_race_mode
@pytest.mark.parametrize("case", ORDERED, ids=str)
def test_no_races(case):
    inputs = cases.make(case)
    check_no_races(lambda: cases.run_case(case, inputs))
