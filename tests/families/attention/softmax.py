"""What the softmax without a maximum per score must bear: attention's numbers against those of a
softmax with one, rows that overflow, and their neighbours."""

import dataclasses
import math

import torch

import thunderkittens
from thunderkittens.testing import memory

BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
SCALES = (0.01, 0.1, 1, 3, 10, 30, 100)


@dataclasses.dataclass(frozen=True)
class Family:
    """Logits of one kind: [rows, keys] of one head, normal numbers before `shape` is applied.

    Attributes:
        name: For the test's name.
        scale: Of the logits.
        growth: By how much they grow from the last key to the first, which comes last.
        outliers: One key in this many is larger or smaller by this.
        softcap: As given to the op.
        shift: Added to all.
    """

    name: str
    scale: float = 1.0
    growth: float = 0.0
    outliers: float = 0.0
    softcap: float = 0.0
    shift: float = 0.0

    def __str__(self) -> str:
        return self.name


FAMILIES = (
    *(Family(f"scale {scale}", scale) for scale in SCALES),
    *(Family(f"growing by {growth}", growth=growth) for growth in (40, 80, 200, -80, -200)),
    *(Family(f"outliers of {size}", outliers=size) for size in (60, 127, 200)),
    *(Family(f"softcap 50, scale {scale}", scale, softcap=50.0) for scale in (1, 30)),
    *(Family(f"softcap {cap:g}, scale 3", 3.0, softcap=cap) for cap in (1e-3, 1e4, 1e6)),
    Family("softcap 50, all near -40", scale=0.1, softcap=50.0, shift=-55.0),
)


def logits(family: Family, rows: int, keys: int) -> torch.Tensor:
    """What the family asks for, float32, before the softcap."""
    s = family.scale * torch.randn(rows, keys)
    s += family.shift + family.growth * torch.linspace(1, 0, keys)
    if family.outliers:
        s[:, ::97] += family.outliers * torch.randn(rows, len(s[0, ::97])).sign()
    return s


def inputs(s: torch.Tensor, dtype: torch.dtype, device: str, width: int = 64) -> list[torch.Tensor]:
    """q, k, v [1, …, 1, width] of one head with about these logits, at scale 1.

    The singular vectors of s as far as `width` allows; the logits that the rounded q and k really
    give are what tests compare with.
    """
    u, d, vt = torch.linalg.svd(s.double(), full_matrices=False)
    root = d[:width].sqrt()
    q, k = u[:, :width] * root, vt[:width].T * root
    v = torch.randn(s.shape[1], width)
    return [t.to(device, dtype)[None, :, None].contiguous() for t in (q, k, v)]


def exact(q, k, v, softcap: float = 0.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """o and lse of one head in float64, and the logits."""
    q, k, v = (t[0, :, 0].double() for t in (q, k, v))
    s = q @ k.T
    s = softcap * torch.tanh(s / softcap) if softcap else s
    return s.softmax(-1) @ v, s.logsumexp(-1), s


def with_maximum(s: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """o as a softmax with the running maximum gives it: weights, and o, rounded to v's dtype."""
    p = (s - s.amax(-1, keepdim=True)).exp()
    o = p.to(v.dtype).double() @ v[0, :, 0].double() / p.sum(-1, keepdim=True)
    return o.to(v.dtype).double()


def check_family(
    family: Family,
    dtype: torch.dtype,
    device: str,
    rows: int,
    keys: int,
    width: int = 64,
    *,
    lags: bool = False,
) -> None:
    """Asserts that errors are about those of a softmax with the maximum, and lse's small.

    `lags`: the maximum may be an earlier block's, and weights are summed before they are rounded. A
    weight that dominates a row is then rounded, which the maximum makes 1: beside the rounding of
    the result there is a second one, so twice the mean square. All columns of a row have it in
    common: of some 30 such rows, the mean square of a rounding's error scatters by 0.9 / √30, of
    which three times are 0.5. And the largest is three times as large: half a unit in the result's
    last place, and the weight's relative error, which at its largest is a whole such unit.
    """
    mean, largest = (math.sqrt(2 + 0.5), 3.0) if lags else (1.2, 1.6)
    q, k, v = inputs(logits(family, rows, keys), dtype, device, width)
    want, want_lse, s = exact(q, k, v, family.softcap)
    best = (with_maximum(s, v) - want).abs()
    for return_lse in (True, False):
        o = thunderkittens.attention(
            q, k, v, scale=1.0, softcap=family.softcap, return_lse=return_lse
        )
        if return_lse:
            o, lse = o
            # Scores are sums of products in float, of which the largest sets the error.
            of_scores = 2**-21 * (q.double().abs()[0, :, 0] @ k.double().abs()[0, :, 0].T).amax(-1)
            off = (lse[0, 0].double() - want_lse).abs()
            assert (off <= 1e-5 + 1e-6 * want_lse.abs() + of_scores).all()
        error = (o[0, :, 0].double() - want).abs()
        assert error.square().mean().sqrt() <= mean * best.square().mean().sqrt() + 1e-7
        assert error.max() <= largest * best.max() + 1e-7


def check_jump(
    by: float, dtype: torch.dtype, device: str, keys: int, large: bool, width: int = 64
) -> None:
    """Asserts o and lse where the first key's logit, which comes last, is so much larger (in units
    of log₂) for every third row, and that the other rows' bits do not depend on it."""
    rows = 70
    k = torch.zeros(keys, width)
    k[:, 1:9] = torch.randn(keys, 8)
    k[0, 0] = 1.0
    q = torch.zeros(rows, width)
    q[:, 1:9] = 0.3 * torch.randn(rows, 8)
    v = torch.randn(keys, width)
    if large:
        v = v.sign() * (1e30 if dtype == BF16 else 6e4)
    calm = [t.to(device, dtype)[None, :, None].contiguous() for t in (q, k, v)]
    q[::3, 0] = by * math.log(2)
    wild = [t.to(device, dtype)[None, :, None].contiguous() for t in (q, k, v)]
    want, want_lse, _ = exact(*wild)
    for return_lse in (True, False):
        results = [
            thunderkittens.attention(*t, scale=1.0, return_lse=return_lse) for t in (calm, wild)
        ]
        if return_lse:
            results, (calm_lse, lse) = zip(*results, strict=True)
            torch.testing.assert_close(lse[0, 0].double(), want_lse, rtol=1e-6, atol=2e-5)
            for row in (1, 2):
                assert memory.bits_equal(lse[:, :, row::3], calm_lse[:, :, row::3])
        unit = 2.0 ** (-8 if dtype == BF16 else -11)
        size = exact(*wild[:2], wild[2].abs())[0]
        assert ((results[1][0, :, 0].double() - want).abs() <= 2 * unit * size).all()
        for row in (1, 2):
            assert memory.bits_equal(results[1][:, row::3], results[0][:, row::3])


def check_sinks_alone(device: str, rows: int, keys: int) -> None:
    """Asserts that with V = 0 nothing comes out, whatever the sinks."""
    q, k, v = inputs(logits(Family("", 3.0), rows, keys), BF16, device)
    sinks = torch.tensor([2.0], device=device, dtype=FP32)
    o = thunderkittens.attention(q, k, torch.zeros_like(v), scale=1.0, sinks=sinks)
    assert not o.any()
