"""Rotary position embedding as a module."""

from typing import TYPE_CHECKING, overload

import torch
from torch import Tensor, nn

from thunderkittens.nn._options import check_numbers, check_sizes
from thunderkittens.ops.rotary import rotary


class Rotary(nn.Module):
    """The tables of rotary position embedding, and `thunderkittens.rotary` with them.

    Position p turns pair i by the angle p / base^(2 i / dim).

    Args:
        dim: How many elements of a head are turned, even; at most the head dimension.
        max_positions: Rows of the tables.
        base: Of the wavelengths.
        interleaved: Pairs are neighbours, not an element of each half.
        device: Of the tables.
        dtype: Of the tables; float32 also serves 16-bit inputs.

    Attributes:
        cos: [max_positions, dim / 2], a buffer that is no part of the state.
        sin: The same of the sines.

    Example:
        >>> import torch, thunderkittens
        >>> q, k = torch.randn(2, 5, 4, 64), torch.randn(2, 5, 1, 64)
        >>> q, k = thunderkittens.nn.Rotary(64, max_positions=128)(q, k)
        >>> k.shape
        torch.Size([2, 5, 1, 64])
    """

    cos: Tensor
    sin: Tensor

    if TYPE_CHECKING:

        @overload
        def __call__(
            self,
            q: Tensor,
            k: Tensor,
            *,
            offsets: int | Tensor | None = ...,
            inplace: bool = ...,
            cu_seqlens: Tensor | None = ...,
            max_seqlen: int | None = ...,
        ) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(
            self,
            q: Tensor,
            k: None,
            *,
            offsets: int | Tensor | None = ...,
            inplace: bool = ...,
            cu_seqlens: Tensor | None = ...,
            max_seqlen: int | None = ...,
        ) -> tuple[Tensor, None]: ...
        @overload
        def __call__(
            self,
            q: Tensor,
            k: Tensor | None,
            *,
            offsets: int | Tensor | None = ...,
            inplace: bool = ...,
            cu_seqlens: Tensor | None = ...,
            max_seqlen: int | None = ...,
        ) -> tuple[Tensor, Tensor | None]: ...
        def __call__(self, *args: object, **kwargs: object) -> object:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        dim: int,
        max_positions: int,
        base: float = 10000.0,
        interleaved: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes("Rotary", dim=dim, max_positions=max_positions)
        check_numbers("Rotary", base=base)
        if dim % 2:
            raise ValueError(f"Rotary: dim must be even and >= 0, got {dim}")
        if base <= 0:
            raise ValueError(f"Rotary: base must be above 0, got {base}")
        self.dim, self.max_positions, self.base = dim, max_positions, base
        self.interleaved = interleaved
        for name in ("cos", "sin"):
            table = torch.empty(max_positions, dim // 2, device=device, dtype=dtype)
            self.register_buffer(name, table, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Writes the tables, from angles in float64: also after `to_empty` or a change of dtype."""
        pairs = torch.arange(self.dim // 2, dtype=torch.float64, device=self.cos.device)
        positions = torch.arange(self.max_positions, dtype=torch.float64, device=self.cos.device)
        angles = torch.outer(positions, self.base ** (-2 * pairs / self.dim))
        self.cos.copy_(angles.cos())
        self.sin.copy_(angles.sin())

    def forward(
        self,
        q: Tensor,
        k: Tensor | None,
        *,
        offsets: int | Tensor | None = None,
        inplace: bool = False,
        cu_seqlens: Tensor | None = None,
        max_seqlen: int | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Turns q and k; see `thunderkittens.rotary`."""
        return rotary(
            q,
            k,
            self.cos,
            self.sin,
            offsets=offsets,
            interleaved=self.interleaved,
            inplace=inplace,
            cu_seqlens=cu_seqlens,
            max_seqlen=max_seqlen,
        )

    def extra_repr(self) -> str:
        """All settings."""
        return (
            f"{self.dim}, max_positions={self.max_positions}, base={self.base}, "
            f"interleaved={self.interleaved}"
        )
