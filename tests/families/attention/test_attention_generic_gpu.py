"""attention's generic kernel on a GPU of any architecture that it is built for."""

import pytest
import torch

import thunderkittens
from tests.families.attention import cases, forward_checks
from tests.families.attention.cases import BF16, FP16, Case
from tests.families.attention.simulator_lists import ALL
from tests.tools.run_to_run import check_same_bits

pytestmark = pytest.mark.gpu

LARGE = [
    Case(1025, 2049, causal, 4, width, dtype, key_heads=4, batch=3)
    for causal in (False, True)
    for width, dtype in ((64, BF16), (80, FP16), (96, BF16), (128, FP16), (256, BF16))
]
RANDOM = cases.random(seed=2, count=300)


@pytest.fixture(autouse=True)
def generic(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    with thunderkittens.backend("auto", kernel="generic"):
        yield


@pytest.mark.parametrize("case", [*ALL, *LARGE], ids=str)
def test_against_float64(case):
    forward_checks.check_numbers(case, "cuda")


@pytest.mark.filterwarnings("ignore:attention. computed by torch")
@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_random_cases(case, monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "0")
    forward_checks.check_any(case, "cuda", gradients=False)


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_the_same_bits_on_every_run(case):
    tensors = cases.make(case, "cuda")
    check_same_bits(lambda: cases.forward(case, *tensors))


def test_explain_says_that_it_is_the_generic_kernel():
    q = torch.randn(1, 9, 1, 64, device="cuda", dtype=BF16)
    found = thunderkittens.explain("attention", q, q, q)
    assert found.backend == "cuda"
    assert found.reason.endswith("it is the generic kernel")
