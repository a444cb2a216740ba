"""attention where its logits are finite and large, where a row's reference moves at such logits,
and where a softcap is far above them. Large scores are exact in float32 here: bounds need no room
for their own errors."""

import dataclasses
import math

import torch

import thunderkittens
from tests.families.attention.reference import SMALL_CAP
from thunderkittens.testing import assert_close, memory, tolerance

BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
CAPS = (1e-6, 1.0, 30.0, 1e4, 1e6)


@dataclasses.dataclass(frozen=True)
class Far:
    """Rows of one head whose logits are up to ± 2^exponent, among rows whose are around 1.

    Attributes:
        exponent: At most 127.
        tops: The keys that have a row's largest logit, all of them the same.
        dtype: Of q, k and v.
        width: D and Dv.
        keys: How many; a few blocks.
        rows: How many.
        causal: As given to the op.
        sink: Whether the head has a sink, as large as the largest logit.
    """

    exponent: int
    tops: tuple[int, ...] = (5, 150, 399)
    dtype: torch.dtype = BF16
    width: int = 64
    keys: int = 400
    rows: int = 70
    causal: bool = False
    sink: bool = False

    def __str__(self) -> str:
        parts = [f"2^{self.exponent}", str(self.dtype).split(".")[1], f"d{self.width}"]
        parts += [f"{self.rows}x{self.keys}", "-".join(map(str, self.tops))]
        parts += ["causal"] * self.causal + ["sink"] * self.sink
        return ",".join(parts)

    @property
    def scale(self) -> float:
        """A power of two, at most 2^99; what it leaves of the exponent, q and k have."""
        return 2.0 ** min(99, max(0, self.exponent - 28))


WIDTHS = (64, 128, 256)
LARGEST = 127 / 128  # of what 2^exponent is multiplied with
FAR = (
    *(Far(e, dtype=dtype) for e in (20, 23, 24, 25, 27, 28, 30, 32) for dtype in (BF16, FP16)),
    *(Far(e, dtype=dtype, width=256) for e in (23, 24, 28, 32, 127) for dtype in (BF16, FP16)),
    *(Far(e) for e in (60, 100, 126, 127)),
    *(Far(30, tops=tops, width=w) for tops in ((3,), (399,), (130, 200)) for w in WIDTHS),
    *(Far(30, width=w, sink=True) for w in WIDTHS),
    *(Far(30, tops=(0, 1), width=w, rows=400, causal=True) for w in WIDTHS),
    Far(127, tops=(20,), dtype=FP16, sink=True),
)


def make(case: Far, device: str) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """q, k, v; the sink; and which rows are near. Of the far rows some have logits that are all
    positive, some that are all negative: those of the tops are then the least."""
    left = case.exponent - round(math.log2(case.scale))
    q, k = torch.zeros(case.rows, case.width), torch.zeros(case.keys, case.width)
    near = torch.arange(case.rows) % 3 == 0
    sign = torch.where(torch.arange(case.rows) % 3 == 1, 1.0, -1.0)
    q[:, 0] = torch.where(near, 0.0, sign * 2.0 ** (left // 2))
    # Positive rows find their largest in these, negative ones half of it in the keys beside them.
    # (Odd numbers: multiplied by log₂e they are rounded.)
    k[:, 0] = torch.randint(70, 120, (case.keys,)) / 128
    k[list(case.tops), 0] = LARGEST
    k[[(t + 7) % case.keys for t in case.tops], 0] = 65 / 128
    k[:, 0] *= 2.0 ** (left - left // 2)
    small = case.scale**-0.5
    q[near, 1:9] = 0.5 * small * torch.randn(int(near.sum()), 8)
    k[:, 1:9] = small * torch.randn(case.keys, 8)
    v = torch.randn(case.keys, case.width)
    tensors = [t.to(device, case.dtype)[None, :, None].contiguous() for t in (q, k, v)]
    return tensors, torch.tensor([LARGEST * 2.0**case.exponent], device=device), near


def exact(case: Far, q, k, v, sink) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """o, lse and softmax @ |v| in float64."""
    q, k, v = (t[0, :, 0].double() for t in (q, k, v))
    s = q @ k.T * case.scale
    if case.causal:
        seen = torch.ones_like(s, dtype=torch.bool).tril(case.keys - case.rows)
        s = s.masked_fill(~seen, -math.inf)
    logits = torch.cat([s, sink.double().expand(case.rows, 1)], -1) if case.sink else s
    p = logits.softmax(-1)[:, : case.keys]
    return p @ v, logits.logsumexp(-1), p @ v.abs()


def check_far(case: Far, device: str) -> None:
    """Asserts o and lse, and that what the far rows hold changes no bit of the near ones."""
    tensors, sink, near = make(case, device)
    calm = [torch.where(near.to(device)[None, :, None, None], tensors[0], 0.0), *tensors[1:]]
    want, want_lse, spread = exact(case, *tensors, sink)
    bound = tolerance.attention(want, spread, case.dtype, case.keys, 4.0)
    options = {"scale": case.scale, "causal": case.causal, "sinks": sink if case.sink else None}
    for return_lse in (True, False):
        got, alone = (
            thunderkittens.attention(*t, **options, return_lse=return_lse) for t in (tensors, calm)
        )
        if return_lse:
            (got, lse), (alone, alone_lse) = got, alone
            assert_close(lse[0, 0], want_lse, 1e-5 + 1e-6 * want_lse.abs(), "lse")
            assert memory.bits_equal(lse[..., near], alone_lse[..., near])
        assert_close(got[0, :, 0], want, bound, "o")
        assert memory.bits_equal(got[:, near], alone[:, near])


@dataclasses.dataclass(frozen=True)
class Rising:
    """Logits of about 2^exponent that rise from block to block of 128 keys, the last block first.

    Attributes:
        exponent: From 24 on all is done with care: a rounded reference would be too far off.
        rise: From the first block that is done to the next two. The fourth is 2 above those.
        dtype: Of q, k and v.
        width: D and Dv.
    """

    exponent: int
    rise: int
    dtype: torch.dtype
    width: int = 64

    def __str__(self) -> str:
        dtype = str(self.dtype).split(".")[1]
        return f"2^{self.exponent},by_{self.rise},{dtype},d{self.width}"


RISING = [
    Rising(exponent, rise, dtype, width)
    for width in (64, 128)
    for dtype in (BF16, FP16)
    for exponent in (10, 20, 22, 23, 24)
    for rise in (4, 46)
]


def check_rising(case: Rising, device: str, rows: int = 40) -> None:
    """Asserts o and lse: what earlier blocks have left must keep its weight."""
    keys = 4 * 128
    height = torch.tensor([case.rise + 2, case.rise, case.rise, 0]).repeat_interleave(128)
    q, k = torch.zeros(rows, case.width), torch.zeros(keys, case.width)
    q[:, 0], k[:, 0] = 2.0 ** (case.exponent // 2), 2.0 ** (case.exponent - case.exponent // 2)
    q[:, 1] = 1.0
    q[::2, 2] = 1.0  # of every other row alone, so that rows of a warp differ
    k[:, 1] = height
    k[:, 2] = 2 * torch.randint(0, 2, (keys,))
    v = torch.randn(keys, case.width)
    tensors = [t.to(device, case.dtype)[None, :, None].contiguous() for t in (q, k, v)]
    q, k, v = (t[0, :, 0].double() for t in tensors)
    s = q @ k.T
    p = s.softmax(-1)
    want, want_lse = p @ v, s.logsumexp(-1)
    bound = tolerance.attention(want, p @ v.abs(), case.dtype, keys, float(case.rise))
    for return_lse in (True, False):
        o = thunderkittens.attention(*tensors, scale=1.0, return_lse=return_lse)
        if return_lse:
            o, lse = o
            assert_close(lse[0, 0], want_lse, 1e-5 + 1e-6 * want_lse.abs(), "lse")
        assert_close(o[0, :, 0], want, bound, "o")


def check_softcap(cap: float, dtype: torch.dtype, device: str, width: int) -> None:
    """Asserts the capped logit itself, which is the lse of a single key, from far below the cap to
    far above it: within 9 · 2⁻²⁴ for tanh, and 3 for its argument, cap, and the sum's logarithm;
    of a small cap, tanh is within 4 · 2⁻²⁴ of 1 besides.
    """
    x = torch.cat([torch.logspace(-6, 1.5, 300), torch.linspace(0.3, 0.8, 100)])
    q = torch.zeros(2 * len(x), width)
    q[:, 0] = torch.cat([x, -x])
    k = torch.zeros(1, width)
    k[0, 0] = 1.0
    q, k = (t.to(device, dtype)[None, :, None].contiguous() for t in (q, k))
    _, lse = thunderkittens.attention(q, k, k, scale=cap, softcap=cap, return_lse=True)
    want = cap * torch.tanh(q[0, :, 0, 0].double())
    of_one = 4 * 2**-24 * cap if cap <= SMALL_CAP else 0.0
    assert_close(lse[0, 0], want, 12 * 2**-24 * want.abs() + of_one + 2**-126)


def check_softcap_of_many_keys(cap: float, dtype: torch.dtype, device: str, width: int) -> None:
    """Asserts o and lse where logits are around 4, whatever the cap."""
    keys = 300
    q, k, v = (torch.randn(1, n, 1, width).to(device, dtype) for n in (70, keys, keys))
    scale = 4 / math.sqrt(width)
    s = q[0, :, 0].double() @ k[0, :, 0].double().T * scale
    size = (q[0, :, 0].double().abs() @ k[0, :, 0].double().abs().T * scale).max()
    s = cap * torch.tanh(s / cap)
    p, values = s.softmax(-1), v[0, :, 0].double()
    want, want_lse = p @ values, s.logsumexp(-1)
    o, lse = thunderkittens.attention(q, k, v, scale=scale, softcap=cap, return_lse=True)
    of_scores = float(size + 3 * s.abs().max())  # in 8 units: of the product, and 12 of the logit
    bound = tolerance.attention(want, p @ values.abs(), dtype, keys, of_scores)
    assert_close(o[0, :, 0], want, bound, "o")
    of_scores *= 8 * tolerance.unit(FP32)
    assert_close(lse[0, 0], want_lse, 1e-5 + 1e-6 * want_lse.abs() + of_scores, "lse")
