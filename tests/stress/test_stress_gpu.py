"""Kernels with asynchronous copies, repeated a few times; `python -m tests.stress` does more."""

import pytest
import torch

from tests.stress.cases import CASES
from tests.stress.repeat import stress

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("problem", CASES, ids=str)
def test_every_run_has_the_same_bits(problem):
    outcome = stress(problem, repeats=20, seconds=0.0)
    torch.cuda.empty_cache()
    assert outcome.good, str(outcome)


@pytest.mark.parametrize("problem", CASES, ids=str)
def test_a_problem_is_of_its_kernel(problem):
    inputs = problem.make("cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        problem.run(inputs)
        torch.cuda.synchronize()
    names = {event.key for event in profile.key_averages()}
    if not any("<" in name for name in names):
        pytest.skip("torch's profiler sees no kernel here")
    assert any(f"::{problem.kernel}<" in name for name in names), names
    torch.cuda.empty_cache()
