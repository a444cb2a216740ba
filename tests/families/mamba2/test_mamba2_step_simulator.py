"""mamba2_step's kernel, lane by lane on the CPU: the list of test_mamba2_step.py."""

import pytest
import torch

import thunderkittens
from tests.families.mamba2 import step_cases
from tests.families.mamba2.cases import BF16, FP16, FP32
from tests.families.mamba2.step_cases import StepCase
from tests.tools.in_simulator import (
    check_no_races,
    check_policies_agree,
    needs_race_mode,
    needs_simulator,
)
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = needs_simulator

ALL = [
    *step_cases.widths((BF16, FP16, FP32)),
    *step_cases.options(),
    *step_cases.options(FP32),
]
SOME = [StepCase(indices=torch.int32), StepCase(1, 2, 1, 5, 250)]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def run(case, inputs):
    """Of states that stay as they were."""
    given = list(inputs)
    given[5] = given[5].clone()
    if case.layout == "states":
        given[5] = given[5].new_zeros(given[5].numel() + 1)[1:].view(given[5].shape)
        given[5].copy_(inputs[5])
    return step_cases.run(case, given)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = step_cases.make(case)
    before = _C.launch_counts()["mamba2_step"]
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: run(case, t), *inputs)
    assert _C.launch_counts()["mamba2_step"] > before
    step_cases.check(case, inputs, results)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_policies_agree(case):
    inputs = step_cases.make(case)
    check_policies_agree(lambda: run(case, inputs))


@needs_race_mode
@pytest.mark.parametrize("case", SOME, ids=str)
def test_no_races(case):
    inputs = step_cases.make(case)
    check_no_races(lambda: run(case, inputs))
