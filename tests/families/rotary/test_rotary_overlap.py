"""rotary in place: q and k that share memory, or that only look as if they did."""

import pytest
import torch

import thunderkittens
from tests.families.rotary import cases
from tests.families.rotary.cases import FP32, Case
from thunderkittens.testing import memory

OVERLAPPING = {  # strides of q [2, 3, 4, 64] that lead to an element in two ways
    "a stride of 0": (768, 0, 64, 1),
    "heads over each other": (768, 256, 63, 1),
    "tokens over each other": (768, 64, 64, 1),
    "batches half over each other": (384, 256, 64, 1),
    "elements apart, heads between": (2000, 600, 7, 2),
    "the same stride twice": (768, 256, 64, 64),
}
APART = {
    "contiguous": (768, 256, 64, 1),
    "transposed": (768, 64, 192, 1),
    "elements apart": (1536, 512, 128, 2),
    "heads between the elements": (768, 256, 1, 4),
    "tokens innermost": (768, 1, 192, 3),
}


@pytest.mark.parametrize("strides", OVERLAPPING.values(), ids=OVERLAPPING)
@pytest.mark.parametrize("name", ["q", "k"])
def test_in_place_on_memory_that_overlaps_with_itself_is_refused(name, strides):
    q, k, cos, sin, *_ = cases.make(Case(key_heads=4, dtype=FP32))
    written = torch.randn(8000).as_strided(q.shape, strides)
    before = written.clone()
    operands = (written, k) if name == "q" else (q, written)
    message = (
        rf"rotary: {name} must not overlap with itself where it is written in place, got sizes"
    )
    with pytest.raises(RuntimeError, match=message):
        thunderkittens.rotary(*operands, cos, sin, inplace=True)
    assert torch.equal(written, before)


@pytest.mark.parametrize("strides", APART.values(), ids=APART)
def test_in_place_on_memory_that_does_not_overlap(strides):
    _, k, cos, sin, *_ = cases.make(Case(dtype=FP32))
    q = torch.randn(8000).as_strided((2, 3, 4, 64), strides)
    want = thunderkittens.rotary(q, k, cos, sin)
    got = thunderkittens.rotary(q, k.clone(), cos, sin, inplace=True)
    assert memory.bits_equal(got[0], want[0])


def test_in_place_on_q_and_k_that_overlap_is_refused():
    _, _, cos, sin, *_ = cases.make(Case(dtype=FP32))
    room = torch.randn(2 * 3 * 12 * 64 + 64)
    heads = room[: 2 * 3 * 12 * 64].view(2, 3, 12, 64)  # of a token
    before = room.clone()

    def shifted(by: int) -> torch.Tensor:
        return room[by:].as_strided((2, 3, 4, 64), heads.stride())

    refused = {
        "the same": (heads, heads),
        "a head in both": (heads[:, :, :5], heads[:, :, 4:]),
        "half a head in both": (heads[:, :, :4], shifted(3 * 64 + 32)),
        "the last element in both": (shifted(0), shifted(4 * 64 - 1)),
        "tokens in both": (heads[:, :2], heads[:, 1:]),
        "halves of heads": (heads[..., :32], heads[..., 31:63]),
        "bytes in both": (heads[:, :, :4], shifted(0).view(torch.int32).view(torch.float32)),
    }
    for name, (q, k) in refused.items():
        with pytest.raises(RuntimeError, match="q must not share memory with k where both"):
            tables = (t[:, : q.shape[-1] // 2] for t in (cos, sin))
            thunderkittens.rotary(q, k, *tables, inplace=True)
            raise AssertionError(name)
    assert torch.equal(room, before)


def test_in_place_on_q_and_k_of_one_buffer():
    """Neighbours, and between each other: by heads, halves of heads, tokens, batches."""
    _, _, cos, sin, *_ = cases.make(Case(dtype=FP32))
    cos, sin = cos[:4, :16], sin[:4, :16]
    room = torch.randn(4, 4, 8, 64)
    accepted = {
        "heads": (room[:, :, :5], room[:, :, 5:]),
        "every other head": (room[:, :, ::2], room[:, :, 1::2]),
        "every other head, back": (room[:, :, 1::2], room[:, :, ::2]),
        "halves of heads": (room[..., :32], room[..., 32:]),
        "tokens": (room[:, :2], room[:, 2:]),
        "batches": (room[:2], room[2:]),
        "of other strides": (room[:2], room[2:].view(2, 8, 4, 64).transpose(1, 2)),
        "no heads": (room, room[:, :, :0]),
    }
    for name, (q, k) in accepted.items():
        want = thunderkittens.rotary(q, k, cos, sin)
        parts = [t.clone() for t in (q, k)]
        thunderkittens.rotary(q, k, cos, sin, inplace=True)
        for got, right in zip((q, k), want, strict=True):
            assert memory.bits_equal(got, right), name
        for t, part in zip((q, k), parts, strict=True):
            t.copy_(part)
