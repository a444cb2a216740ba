"""attention's softmax on a GPU: many keys, all kinds of logits."""

import pytest

from tests.families.attention import softmax
from tests.families.attention.softmax import BF16, FP16

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernel."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.mark.parametrize("width", [64, 256])
@pytest.mark.parametrize("keys", [2048, 3072])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("family", softmax.FAMILIES, ids=str)
def test_errors_are_those_of_a_running_maximum(family, dtype, keys, width):
    softmax.check_family(family, dtype, "cuda", 512, keys, width)


@pytest.mark.parametrize("large", [False, True], ids=["normal values", "large values"])
@pytest.mark.parametrize("keys", [129, 700, 3072])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("by", [7, 9, 60, 127, 130, 500])
@pytest.mark.parametrize("width", [64, 256])
def test_rows_that_jump_are_right_and_alone(width, by, dtype, keys, large):
    softmax.check_jump(by, dtype, "cuda", keys, large, width)


def test_sinks_alone():
    softmax.check_sinks_alone("cuda", rows=300, keys=3000)
