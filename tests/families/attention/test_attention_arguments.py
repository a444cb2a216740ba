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


ADVICE = "tensors of [B, H, S, D] go to thunderkittens.scaled_dot_product_attention"


def of_shapes(q: tuple[int, ...], k: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return torch.ones(*q), torch.ones(*k), torch.ones(*k)


def test_heads_before_rows_are_refused_with_advice():
    """[B, H, S, D] as torch has it: its heads divide, where ours are they do not."""
    with pytest.raises(ValueError, match="must be a multiple of k.* = 5, got 3; heads") as raised:
        thunderkittens.attention(*of_shapes((2, 8, 3, 64), (2, 2, 5, 64)))
    assert ADVICE in str(raised.value)
    for q, k in (
        ((2, 7, 3, 64), (2, 2, 5, 64)),  # neither divides
        ((2, 7, 3, 64), (2, 0, 5, 64)),
    ):
        with pytest.raises(ValueError, match=r"must be a multiple of k.size\(-2\) = 5, got 3$"):
            thunderkittens.attention(*of_shapes(q, k))


def test_packed_heads_are_refused_without_advice():
    q, k = torch.ones(8, 3, 64), torch.ones(8, 5, 64)
    packing = {f"cu_seqlens_{name}": torch.tensor([0, 8]) for name in "qk"}
    packing |= {f"max_seqlen_{name}": 8 for name in "qk"}
    with pytest.raises(ValueError, match="must be a multiple of k.* = 5, got 3$"):
        thunderkittens.attention(q, k, k, **packing)


def test_more_heads_than_rows_are_noted():
    def notes(q, k):
        return thunderkittens.explain("attention", *of_shapes(q, k)).notes

    (note,) = notes((2, 4, 8, 64), (2, 4, 8, 64))
    assert note.startswith("q has 8 heads of 4 rows each: is it [B, H, S, D]?")
    q = torch.ones(2, 8, 4, 64)
    assert not thunderkittens.explain("scaled_dot_product_attention", q, q, q).notes
    assert not notes((2, 8, 8, 64), (2, 8, 8, 64))
    assert not notes((2, 8, 8, 64), (2, 4, 8, 64))
    assert not notes((2, 1, 32, 64), (2, 9, 8, 64))  # a step of decoding
    assert not notes((2, 1, 32, 64), (2, 1, 32, 64))  # its first
    assert not notes((2, 4, 8, 64), (2, 64, 8, 64))  # a few rows beside a cache
