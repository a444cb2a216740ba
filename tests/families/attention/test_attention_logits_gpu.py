"""attention's large logits and softcaps on a GPU."""

import dataclasses

import pytest

from tests.families.attention import logits
from tests.families.attention.logits import BF16, FP16, WIDTHS

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("case", logits.FAR, ids=str)
def test_rows_whose_logits_are_large(case):
    logits.check_far(case, "cuda")
    logits.check_far(dataclasses.replace(case, rows=500, keys=3000), "cuda")


@pytest.mark.parametrize("case", logits.RISING, ids=str)
def test_rows_whose_large_logits_rise(case):
    logits.check_rising(case, "cuda", rows=700)


@pytest.mark.parametrize("width", [8, *WIDTHS])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("cap", logits.CAPS)
def test_softcap(cap, dtype, width):
    logits.check_softcap(cap, dtype, "cuda", width)
    logits.check_softcap_of_many_keys(cap, dtype, "cuda", width)
