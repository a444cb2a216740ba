"""Tensors as they lie in memory: strided, off 16 bytes, between guard bands and with gaps."""

from __future__ import annotations

import math

import torch
from torch import Tensor

GUARD = 512  # bytes of guard on each side, a multiple of every alignment
NEIGHBOURS = (math.nan, 1e4)  # what stands around and between the elements, in turns
INTEGER_NEIGHBOURS = (0x55, -3)


class Placed:
    """A tensor in a buffer of its own.

    Args:
        values: The elements, any strides.
        strides: Of the tensor; 0 for a dimension that is expanded, of which `values` counts the
            first element alone.
        offset: Elements by which it starts off the guard's end, which is aligned.
    """

    def __init__(self, values: Tensor, strides: tuple[int, ...], offset: int = 0) -> None:
        self.strides = strides
        # The elements that have a place of their own, and how they are expanded.
        for dim, (size, stride) in enumerate(zip(values.shape, strides, strict=True)):
            if stride == 0 and size > 1:
                values = values.narrow(dim, 0, 1).expand(values.shape)
        once = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
        self._values, self._once = values[once].contiguous(), once
        span = 1 + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True))
        self.span = span if values.numel() else 0
        size = values.element_size()
        self.guard = GUARD // size
        self.buffer = torch.empty(
            2 * self.guard + offset + self.span, dtype=values.dtype, device=values.device
        )
        self.view = self.buffer.as_strided(values.shape, strides, self.guard + offset)
        self._before: Tensor | None = None

    def lay_out(self, turn: int) -> Tensor:
        """Writes buffer and tensor again, with the neighbours of this turn; returns the tensor."""
        if self.buffer.dtype.is_floating_point:  # (NaN is no less than the largest)
            self.buffer.fill_(min(NEIGHBOURS[turn % 2], torch.finfo(self.buffer.dtype).max))
        else:
            self.buffer.fill_(INTEGER_NEIGHBOURS[turn % 2])
        if self._values.numel():
            self.view[self._once].copy_(self._values)
        self._before = self.buffer.clone()
        return self.view

    def unchanged(self, written: bool) -> Tensor:
        """Whether no byte has changed since; where the tensor is `written`, none beside it."""
        assert self._before is not None
        if written and self._values.numel():
            offset = self.view.storage_offset()
            inside = self._before.as_strided(self.view.shape, self.strides, offset)
            inside[self._once].copy_(self.view[self._once])
        return same_bits(self.buffer, self._before)

    @property
    def values(self) -> Tensor:
        """The elements as they were given, expanded, apart from the buffer."""
        return self._values.expand(self.view.shape)


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Whether two tensors of one shape are the same to the bit, as one bool on their device."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return torch.zeros((), dtype=torch.bool, device=a.device)
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    left, right = (t.detach().contiguous().view(-1).view(kind) for t in (a, b))
    return (left == right).all()
