"""mamba2_step's kernel on a GPU: the lists of its other tests."""

import pytest

from tests.families.mamba2 import step_cases
from tests.families.mamba2.cases import BF16, FP16, FP32
from tests.families.mamba2.step_cases import StepCase
from thunderkittens import _C

pytestmark = pytest.mark.gpu

ALL = [
    *step_cases.widths((BF16, FP16, FP32)),
    *step_cases.options(),
    *step_cases.options(FP32),
    StepCase(64, 80, 1, 64, 128),
]


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, and by our kernel."""
    inputs = step_cases.make(case, "cuda")
    given = [t if t is None or i != 5 else t.clone() for i, t in enumerate(inputs)]
    before = _C.launch_counts()["mamba2_step"]
    results = step_cases.run(case, given)
    assert _C.launch_counts()["mamba2_step"] == before + 1
    step_cases.check(case, inputs, results)
