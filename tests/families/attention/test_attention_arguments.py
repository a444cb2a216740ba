"""What attention says of heads and windows that it refuses."""

import math

import pytest
import torch

import thunderkittens


def test_heads_must_divide():
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 5, 3, 8)
    message = r"attention: q.size\(-2\) must be a multiple of k.size\(-2\) = 3, got 4"
    with pytest.raises(ValueError, match=message):
        thunderkittens.attention(q, k, k)
    none = torch.randn(2, 5, 0, 8)
    with pytest.raises(ValueError, match="must be a multiple of"):
        thunderkittens.attention(q, none, none)


@pytest.mark.parametrize("window", [3, (1,), (1, 2, 3), "ab c"], ids=repr)
def test_window_must_be_a_pair(window):
    q = torch.randn(1, 2, 1, 8)
    with pytest.raises(ValueError, match=r"attention: window must be \(left, right\) or None, got"):
        thunderkittens.attention(q, q, q, window=window)


@pytest.mark.parametrize("side", [1.5, True, "a", -1, math.nan], ids=repr)
def test_sides_of_the_window(side):
    q = torch.randn(1, 2, 1, 8)
    for name, window in (("left", (side, 0)), ("right", (None, side))):
        message = f"^attention: window's {name} must be an integer >= 0 or None, got {side!r}$"
        with pytest.raises(ValueError, match=message):
            thunderkittens.attention(q, q, q, window=window)
    want = thunderkittens.attention(q, q, q, window=(1, 0))
    got = thunderkittens.attention(q, q, q, window=(torch.tensor(1), 0))
    assert torch.equal(got, want)
