"""Running error analysis: numbers in float64 that carry what narrower arithmetic may make of them.

Each operation bounds its own rounding by u · |result|, u the unit roundoff of the dtype computed
in, and passes on the errors of its operands, all signs at their worst (Wilkinson; Higham, "Accuracy
and Stability of Numerical Algorithms", 2.2 and 3.3). So a bound grows where the problem is badly
conditioned, and nowhere else. Where the narrower arithmetic may overflow, or a denominator may be
zero, the error is infinite: there everything is right, NaN included.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """The dtype computed in.

    Attributes:
        unit: Its unit roundoff; doubled, since `a · b + c` may be rounded twice, once as an fma, or
            be taken apart in another order.
        tiny: What a result may lose to underflow: approximations flush subnormal numbers to zero.
        most: From here on it may overflow.
    """

    unit: float
    tiny: float
    most: float

    @staticmethod
    def of(dtype: torch.dtype) -> Arithmetic:
        """What an op computes in whose tensors have this dtype: float32, float64 for float64."""
        inner = torch.float64 if dtype == torch.float64 else torch.float32
        info = torch.finfo(inner)
        return Arithmetic(info.eps, 2 * info.smallest_normal, info.max / 2)

    def sum(self, length: int, generic: bool = True) -> float:
        """The relative error of a sum of `length` terms, against the sum of their absolute values.

        Roundings of a sum behave as a random walk (Higham and Mary, 2019), √n · unit; the 8 is for
        chains in which they all have one sign, such as equal terms give: kernels and torch add at
        most some tens of numbers in a row before they go on by halves. But products of matrices add
        all n in a row (cuBLAS in float64, for one): unless the terms are unrelated numbers, every
        rounding may have one sign, and n · eps / 2 is reached (Higham's γ, 3.1).
        """
        walk = 2 * math.sqrt(max(length, 1))
        return self.unit * (8 + (walk if generic else max(walk, length / 2)))


class Number:
    """A tensor of float64 values, and by how much each may be off."""

    def __init__(self, arithmetic: Arithmetic, value: Tensor, error: Tensor | float = 0.0) -> None:
        self.arithmetic = arithmetic
        self.value = value
        self.error = torch.as_tensor(error, dtype=torch.float64, device=value.device)

    def _made(self, value: Tensor, error: Tensor) -> Number:
        """A result, rounded. NaN compares false: what became of ∞ − ∞ may be anything."""
        error = error + self.arithmetic.unit * value.abs() + self.arithmetic.tiny
        fits = value.abs() + error <= self.arithmetic.most
        return Number(self.arithmetic, value, torch.where(fits, error, math.inf))

    def _other(self, other: Number | Tensor | float) -> Number:
        if isinstance(other, Number):
            return other
        value = torch.as_tensor(other, dtype=torch.float64, device=self.value.device)
        return Number(self.arithmetic, value)

    def __add__(self, other: Number | Tensor | float) -> Number:
        b = self._other(other)
        return self._made(self.value + b.value, self.error + b.error)

    def __sub__(self, other: Number | Tensor | float) -> Number:
        b = self._other(other)
        return self._made(self.value - b.value, self.error + b.error)

    def __mul__(self, other: Number | Tensor | float) -> Number:
        b = self._other(other)
        error = self.value.abs() * b.error + b.value.abs() * self.error + self.error * b.error
        return self._made(self.value * b.value, error)

    def __truediv__(self, other: Number) -> Number:
        value, low = self.value / other.value, other.value.abs() - other.error
        error = (self.error + value.abs() * other.error) / low
        return self._made(value, torch.where(low > 0, error, math.inf))

    def plus(self, error: Tensor | float) -> Number:
        """The same number, further off."""
        return Number(self.arithmetic, self.value, self.error + error)

    def rsqrt(self) -> Number:
        """1 / √x; an approximation is good to 2 units in the last place."""
        value, low = self.value.rsqrt(), self.value - self.error
        error = torch.where(low > 0, low.rsqrt() - value, math.inf)
        return self._made(value, error + 4 * self.arithmetic.unit * value)

    def sum(self, dim: int | tuple[int, ...], keepdim: bool = False) -> Number:
        """Over one dimension or several, in any order."""
        dims = (dim,) if isinstance(dim, int) else dim
        length = math.prod(self.value.shape[d] for d in dims)
        size = self.value.abs().sum(dims, keepdim)
        error = self.error.expand_as(self.value).sum(dims, keepdim)
        error = error + self.arithmetic.sum(length) * size
        # A sum of numbers of both signs may overflow on its way.
        return self._made(self.value.sum(dims, keepdim), _unless(size, self.arithmetic, error))

    def mean(self) -> Number:
        """Over the last dimension, which stays."""
        total = self.sum(-1, keepdim=True)
        return total * (1.0 / max(1, self.value.shape[-1]))

    def rounded(self, dtype: torch.dtype) -> Number:
        """Rounded once more, to the nearest number of `dtype`."""
        return Number(self.arithmetic, self.value, self.error + rounding(self, dtype))


def rounding(x: Number, dtype: torch.dtype) -> Tensor:
    """The error of rounding to the nearest: eps / 2 · |x|, or half a step of subnormal numbers."""
    info = torch.finfo(dtype)
    step = info.smallest_normal * info.eps
    return info.eps / 2 * (x.value.abs() + x.error) + step / 2


def walk(unit: float, terms: Tensor, dim: int, generic: bool) -> Tensor:
    """The error of a sum whose terms were each rounded before, by up to `unit` of themselves.

    In the worst case Σ unit · |term|. But errors of roundings of unrelated numbers (`generic`) are
    independent; over the numbers of a binade they are uniform, 0.41 · unit on the average of
    squares, so that seven standard deviations are 2.9 · unit · √(Σ term²): exceeded once in 10¹¹.
    """
    worst = unit * terms.abs().sum(dim)
    if not generic:
        return worst
    return torch.minimum(worst, 3.0 * unit * terms.square().sum(dim).sqrt())


def _unless(size: Tensor, arithmetic: Arithmetic, error: Tensor) -> Tensor:
    return torch.where(size <= arithmetic.most, error, math.inf)
