"""attention's large logits and softcaps in the simulator."""

import pytest

import thunderkittens
from tests.families.attention import logits
from tests.families.attention.logits import BF16, FP16
from thunderkittens import _loader

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(), reason="the simulator is not built"
)


@pytest.fixture(autouse=True)
def simulated():
    with thunderkittens.backend("simulator"):
        yield


@pytest.mark.parametrize("case", logits.FAR, ids=str)
def test_rows_whose_logits_are_large(case):
    logits.check_far(case, "cpu")


@pytest.mark.parametrize("case", logits.RISING, ids=str)
def test_rows_whose_large_logits_rise(case):
    logits.check_rising(case, "cpu")


@pytest.mark.parametrize("width", [64, 256])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("cap", logits.CAPS)
def test_softcap(cap, dtype, width):
    logits.check_softcap(cap, dtype, "cpu", width)
    logits.check_softcap_of_many_keys(cap, dtype, "cpu", width)
