"""What a case is drawn from: its op and seed alone, the same on every machine.

Choices come from Python's generator, elements from a hash of their number, whose integers are exact
on every device. (Torch's generator on a GPU gives other numbers on one with fewer multiprocessors.)
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from tests.fuzz.placement import Placed

T = TypeVar("T")
FP64, FP32, FP16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
DTYPES = {BF16: 4, FP16: 3, FP32: 3, FP64: 1}

# How values are spread, and how often. Those of GENERIC are independent of one another.
REGIMES = {
    "normal": 12,
    "positive": 1,
    "small": 1,
    "offset": 1,
    "negative": 1,
    "constant": 1,
    "constant rows": 1,
    "one-hot": 1,
    "sparse": 1,
    "tiny": 1,
    "denormal": 1,
    "huge": 1,
    "edge": 1,
    "mixed rows": 1,
}
GENERIC = ("normal", "positive", "small")

_ODD = -7046029254386353131  # 2⁶⁴ / golden ratio, as int64
_MIX = (-4658895280553007687, -7723592293110705685)  # of splitmix64


class Draw:
    """Choices and tensors of one case.

    Args:
        op: The op's name.
        seed: The number of the case.
        device: "cpu" or "cuda".
        kernels: Whether our kernels compute what they take. It changes bounds, and no call.
        large: Whether the case is that which a GPU gets, whatever the device.

    Attributes:
        large: Whether shapes are those of a GPU, which are larger.
    """

    def __init__(
        self, op: str, seed: int, device: str, kernels: bool = False, large: bool = False
    ) -> None:
        self.device = device
        self.kernels = kernels
        self.large = large or device == "cuda"
        self.random = random.Random(f"{op}:{seed}")
        self._key = self.random.getrandbits(62)
        self._tensors = itertools.count(1)

    # ---- Choices --------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def choice(self, options: Sequence[T]) -> T:
        return self.random.choice(list(options))

    def weighted(self, options: dict[T, float]) -> T:
        return self.random.choices(list(options), list(options.values()))[0]

    def regime(self, *others: str, without: Sequence[str] = ()) -> str:
        options = {name: n for name, n in REGIMES.items() if name not in without}
        return self.weighted({**options, **dict.fromkeys(others, 1)})

    def integer(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def size(self, most: int, least: int = 1) -> int:
        """All magnitudes alike; often at or beside a multiple of a power of two."""
        most = max(most, least)
        value = round(math.exp(self.random.uniform(math.log(least), math.log(most + 0.49))))
        if self.chance(0.5):
            unit = 1 << max(0, value.bit_length() - self.integer(1, 3))
            value = value // unit * unit + self.choice((-1, 0, 0, 0, 1))
        return min(max(value, least), most)

    def elements(self) -> int:
        """About how many elements the largest tensor has."""
        if self.large:
            return self.weighted({1 << 12: 4, 1 << 16: 8, 1 << 19: 5, 1 << 22: 1, 1 << 24: 0.08})
        return self.weighted({256: 4, 2048: 4, 8192: 1})

    def leading(self, most: int, dims: int | None = None) -> tuple[int, ...]:
        """Sizes of one to three dimensions whose product is at most about `most`."""
        rows = self.size(max(1, most))
        count = dims or self.weighted({1: 6, 2: 4, 3: 2})
        sizes = []
        for left in range(count, 1, -1):
            part = self.size(max(1, round(rows ** (1 / left) * 2)))
            sizes.append(min(part, rows))
            rows = max(1, rows // sizes[-1])
        sizes.append(rows)
        self.random.shuffle(sizes)
        return tuple(sizes)

    # ---- Tensors --------------------------------------------------------------------------------

    def bits(self, shape: Sequence[int]) -> Tensor:
        """Integers of 63 random bits: splitmix64 of each element's number."""
        number = torch.arange(math.prod(shape), device=self.device)
        key = (self._key ^ (next(self._tensors) * 0x9E3779B97F4A7C1)) & (2**62 - 1)
        x = number * _ODD + key
        for shift, factor in zip((30, 27), _MIX, strict=True):
            x = (x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))) * factor
        x = x ^ ((x >> 31) & ((1 << 33) - 1))
        return (x & (2**63 - 1)).view(tuple(shape))

    def uniform(self, shape: Sequence[int]) -> Tensor:
        """float64, above 0 and below 1."""
        return ((self.bits(shape) >> 11).double() + 0.5) * 2.0**-52

    def normal(self, shape: Sequence[int]) -> Tensor:
        """float64, of the normal distribution, by Box and Muller."""
        radius = (-2 * self.uniform(shape).log()).sqrt()
        return radius * (2 * math.pi * self.uniform(shape)).cos()

    def integers(self, shape: Sequence[int], least: int, most: int) -> Tensor:
        """int64, from `least` to `most`."""
        return self.bits(shape) % (most - least + 1) + least

    def values(self, shape: Sequence[int], dtype: torch.dtype, regime: str) -> Tensor:
        """Elements of `dtype`, spread over [..., N] as the regime says."""
        info = torch.finfo(dtype)
        x = self.normal(shape)
        row = (*shape[:-1], 1) if len(shape) else ()
        if regime == "positive":
            x = self.uniform(shape)
        elif regime == "small":
            x = x * 2.0**-6
        elif regime == "offset":
            x = x + self.choice((-1, 1)) * 2.0 ** self.integer(3, 12)
        elif regime == "negative":
            x = -x.abs() * 8 - 40
        elif regime == "constant":
            x = torch.full_like(x, self.random.gauss(0, 2))
        elif regime == "constant rows":
            x = self.normal(row).expand(shape).clone()
        elif regime == "one-hot":
            x = torch.zeros_like(x)
            if x.numel():
                at = self.integers(row, 0, shape[-1] - 1)
                x.scatter_(-1, at, self.choice((1.0, -8.0, 1000.0)))
        elif regime == "sparse":
            x = x * (self.uniform(shape) > 0.75)
        elif regime == "tiny":
            x = x * info.smallest_normal**0.5
        elif regime == "denormal":
            x = x * info.smallest_normal / 8
        elif regime == "huge":
            x = x * info.max**0.5
        elif regime == "edge":
            x = x.sign() * min(info.max, 1e38) * (1 - self.uniform(shape) / 4)
        elif regime == "mixed rows":
            most = 6 if dtype == FP16 else 20
            x = x * 2.0 ** self.integers(row, -most, most).double()
        elif regime != "normal":
            raise ValueError(f"unknown regime {regime!r}")
        return x.clamp(-info.max, info.max).to(dtype)

    # ---- Placement ------------------------------------------------------------------------------

    def place(self, values: Tensor, *, expand: bool = False, rows: bool = False) -> Placed:
        """Puts a tensor somewhere in memory.

        Args:
            values: The elements.
            expand: Whether dimensions may have stride 0.
            rows: Whether rows have to be one distance apart, their elements neighbours.
        """
        offset = self.choice((0, 0, 1, 1, 2, 4, 8, 3)) if self.chance(0.4) else 0
        dims = values.dim()
        kind = self.weighted({"plain": 5, "padded": 3, "permuted": 2, "stepped": 1, "expanded": 1})
        if kind == "expanded" and not expand:
            kind = "padded"
        if rows and kind in ("permuted", "stepped"):
            kind = "padded"
        order = list(range(dims))  # from the outermost in memory to the innermost
        if kind == "permuted":
            head = order[:-1] if self.chance(0.7) else order
            self.random.shuffle(head)
            order = head if len(head) == dims else [*head, dims - 1]
        strides, pitch = [0] * dims, 2 if kind == "stepped" else 1
        for depth, dim in enumerate(reversed(order)):
            strides[dim] = pitch
            pitch = max(1, values.shape[dim]) * pitch
            if kind in ("padded", "permuted") and (depth == 0 or (not rows and self.chance(0.3))):
                pitch += self.choice((1, 3, 8, 8, 16, 64, 0))
        if kind == "expanded":
            for dim in range(dims):
                if self.chance(0.5 if dim < dims - 1 else 0.3):
                    strides[dim] = 0
        if not rows:  # a dimension of size 1 has no stride to speak of
            for dim in range(dims):
                if values.shape[dim] == 1 and self.chance(0.2):
                    strides[dim] = self.choice((0, 1, 7, 1000))
        return Placed(values, tuple(strides), offset)


def split(draw: Draw, tokens: int) -> tuple[int, ...]:
    """Lengths of sequences, some of them 0."""
    count = draw.size(min(tokens + 1, 40))
    cuts = sorted(draw.integer(0, tokens) for _ in range(count - 1))
    ends = [0, *cuts, tokens]
    return tuple(b - a for a, b in itertools.pairwise(ends))
