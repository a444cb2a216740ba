"""The norms' backward of long rows on a GPU."""

import pytest
import torch

from tests.families.norm import long_rows as cases
from thunderkittens.testing import check_memory, memory

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture
def multiprocessors() -> int:
    return torch.cuda.get_device_properties(0).multi_processor_count


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def test_against_float64(case, multiprocessors):
    """Right, within its tensors, the same bits with other neighbours, and at each repetition."""
    module = cases.module_of(case)
    case = cases.with_rows(case, multiprocessors)
    inputs = module.make(case, "cuda")
    results = check_memory(lambda *t: module.run_case(case, t), *inputs)
    module.check_case(case, inputs, results)
    for _ in range(10):
        for got, first in zip(module.run_case(case, inputs), results, strict=True):
            assert got is first is None or memory.bits_equal(got, first)


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def test_both_kernels_give_the_same_bits(case, multiprocessors):
    cases.check_same_bits(case, multiprocessors, "cuda")
