"""linear's generic kernel on a GPU of any architecture that it is built for."""

import pytest

import thunderkittens
from tests.families.linear import cases
from tests.families.linear.test_linear_gpu import LARGE
from thunderkittens import _C
from thunderkittens.testing import memory

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def generic(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    with thunderkittens.backend("auto", kernel="generic"):
        yield


@pytest.mark.parametrize("case", [*cases.every(), *LARGE], ids=str)
def test_against_float64(case):
    """Right, the same bits again, and by our kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["linear"]
    results = cases.run_case(case, inputs)
    assert _C.launch_counts()["linear"] == before + 1
    cases.check_case(case, inputs, results)
    for _ in range(3):
        assert memory.bits_equal(cases.run_case(case, inputs)[0], results[0])
