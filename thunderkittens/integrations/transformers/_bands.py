"""Mask functions of transformers that are a band of diagonals.

Such a function is asked once, with symbols for its indices. One that compares nothing but key with
row, whatever it is made of, answers with a band; one that does anything else is none.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor


class NotUnderstood(Exception):
    """A mask function does with its indices what no band does."""


class Band:
    """low ≤ key − row ≤ high, positions counted alike; ±inf for no limit."""

    device = "cpu"  # of what a mask function returns, which transformers asks for

    def __init__(self, low: float = -math.inf, high: float = math.inf) -> None:
        self.low, self.high = low, high

    def __and__(self, other: object) -> "Band":
        other = _band(other)
        return Band(max(self.low, other.low), min(self.high, other.high))

    def __or__(self, other: object) -> "Band":
        other = _band(other)
        if self.low > self.high:
            return other
        if other.low > other.high:
            return self
        if max(self.low, other.low) > min(self.high, other.high) + 1:  # a gap between the two
            raise NotUnderstood
        return Band(min(self.low, other.low), max(self.high, other.high))

    __rand__, __ror__ = __and__, __or__

    def to(self, device: object) -> "Band":
        return self


def _band(value: object) -> Band:
    """A band, or the constant that some models combine theirs with."""
    if isinstance(value, Band):
        return value
    if isinstance(value, Tensor) and value.dim() == 0 and value.device.type == "cpu":
        return Band() if bool(value) else Band(math.inf, -math.inf)
    raise NotUnderstood


class _Distance:
    """sign · (key − row) + offset."""

    def __init__(self, sign: int, offset: int) -> None:
        self.sign, self.offset = sign, offset

    def __abs__(self) -> "_Absolute":
        if self.offset:
            raise NotUnderstood
        return _Absolute()


class _Absolute:
    """|key − row|."""

    def __le__(self, limit: object) -> Band:
        return Band(-_integer(limit), _integer(limit))

    def __lt__(self, limit: object) -> Band:
        return Band(1 - _integer(limit), _integer(limit) - 1)


class _Index:
    """The position of a row or a key, plus an offset."""

    device = "cpu"

    def __init__(self, is_key: bool, offset: int = 0) -> None:
        self.is_key, self.offset = is_key, offset

    def new_ones(self, shape: object, dtype: object = None) -> Band:
        return Band()

    def new_zeros(self, shape: object, dtype: object = None) -> Band:
        return Band(math.inf, -math.inf)

    def __add__(self, other: object) -> "_Index":
        return _Index(self.is_key, self.offset + _integer(other))

    def __sub__(self, other: object) -> Any:
        if not isinstance(other, _Index):
            return _Index(self.is_key, self.offset - _integer(other))
        if self.is_key == other.is_key:
            raise NotUnderstood
        return _Distance(1 if self.is_key else -1, self.offset - other.offset)

    def __le__(self, other: object) -> Band:
        """self + offset ≤ other + offset, as a limit of key − row."""
        if not isinstance(other, _Index) or other.is_key == self.is_key:
            raise NotUnderstood
        slack = other.offset - self.offset
        return Band(high=slack) if self.is_key else Band(low=-slack)

    def __lt__(self, other: object) -> Band:
        return self + 1 <= other

    def __ge__(self, other: object) -> Band:
        if isinstance(other, _Index):
            return other <= self
        if _integer(other) > self.offset:
            raise NotUnderstood
        return Band()  # no position is below 0

    def __gt__(self, other: object) -> Band:
        if not isinstance(other, _Index):
            raise NotUnderstood
        return other + 1 <= self


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotUnderstood
    return value


def band_of(mask_function: Callable[..., Any]) -> Band | None:
    """The band that a mask function is; None for what is none."""
    try:
        band = mask_function(None, None, _Index(is_key=False), _Index(is_key=True))
    except (NotUnderstood, TypeError, AttributeError, IndexError, KeyError, RuntimeError):
        return None
    return band if isinstance(band, Band) else None
