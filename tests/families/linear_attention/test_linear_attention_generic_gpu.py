"""linear_attention's generic kernel on a GPU of any architecture that it is built for."""

import pytest
import torch

import thunderkittens
from tests.families.linear_attention import cases
from tests.families.linear_attention.cases import BF16
from tests.families.linear_attention.lists import COMMON, LARGE
from tests.tools.run_to_run import check_same_bits
from thunderkittens import _C
from thunderkittens.testing import check_memory

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def generic(monkeypatch):
    """By the generic kernel; a fallback would test torch."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    with thunderkittens.backend("auto", kernel="generic"):
        yield


@pytest.mark.parametrize("case", [*COMMON, *LARGE], ids=str)
def test_against_float64(case):
    """Right, within its tensors, the same bits with other neighbours, and by our kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["linear_attention"]
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    assert _C.launch_counts()["linear_attention"] >= before + 8
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_run_to_run(case):
    """The same bits every time, also while another stream keeps the GPU busy."""
    inputs = cases.make(case, "cuda")
    check_same_bits(lambda: cases.run_case(case, inputs))


def test_explain_says_that_it_is_the_generic_kernel():
    q = torch.randn(1, 9, 2, 64, device="cuda", dtype=BF16)
    found = thunderkittens.explain("linear_attention", q, q, q)
    assert found.backend == "cuda"
    assert found.reason.endswith("it is the generic kernel")
