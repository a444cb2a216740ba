"""attention's softmax in the simulator: few rows, all kinds of logits."""

import pytest

import thunderkittens
from tests.families.attention import softmax
from tests.families.attention.softmax import BF16, FP16
from thunderkittens import _loader

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(), reason="the simulator is not built"
)


@pytest.fixture(autouse=True)
def simulated():
    with thunderkittens.backend("simulator"):
        yield


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("family", softmax.FAMILIES, ids=str)
def test_errors_are_those_of_a_running_maximum(family, dtype):
    softmax.check_family(family, dtype, "cpu", rows=192, keys=800)


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("family", softmax.FAMILIES, ids=str)
def test_errors_where_every_step_is_online(family, dtype):
    """Above head dimension 128: a reference that lags behind the maximum fails."""
    softmax.check_family(family, dtype, "cpu", rows=64, keys=400, width=256)


@pytest.mark.parametrize("by", [7, 9, 60, 500])
def test_rows_that_jump_where_every_step_is_online(by):
    softmax.check_jump(by, FP16, "cpu", keys=200, large=True, width=256)


@pytest.mark.parametrize("large", [False, True], ids=["normal values", "large values"])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("by", [60, 127, 130, 500])
def test_rows_that_jump_are_right_and_alone(by, dtype, large):
    softmax.check_jump(by, dtype, "cpu", keys=700, large=large)


def test_sinks_alone():
    softmax.check_sinks_alone("cpu", rows=64, keys=300)
