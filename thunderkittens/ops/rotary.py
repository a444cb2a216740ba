"""Rotary position embedding."""

from collections.abc import Callable
from typing import NoReturn, overload

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_bool, refuse_keywords, refuse_types

_Op = Callable[..., tuple[Tensor, Tensor]]
_rotary: _Op = torch.ops.thunderkittens.rotary.default
_rotary_plain: _Op = torch.ops.thunderkittens.rotary.plain
_rotary_: Callable[..., None] = torch.ops.thunderkittens.rotary_.default


@overload
def rotary(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    offsets: int | Tensor | None = ...,
    interleaved: bool = ...,
    inplace: bool = ...,
    cu_seqlens: Tensor | None = ...,
    max_seqlen: int | None = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def rotary(
    q: Tensor,
    k: None,
    cos: Tensor,
    sin: Tensor,
    *,
    offsets: int | Tensor | None = ...,
    interleaved: bool = ...,
    inplace: bool = ...,
    cu_seqlens: Tensor | None = ...,
    max_seqlen: int | None = ...,
) -> tuple[Tensor, None]: ...
@overload
def rotary(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    *,
    offsets: int | Tensor | None = ...,
    interleaved: bool = ...,
    inplace: bool = ...,
    cu_seqlens: Tensor | None = ...,
    max_seqlen: int | None = ...,
) -> tuple[Tensor, Tensor | None]: ...
def rotary(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    *,
    offsets: int | Tensor | None = None,
    interleaved: bool = False,
    inplace: bool = False,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
    **_foreign: NoReturn,
) -> tuple[Tensor, Tensor | None]:
    """Rotary position embedding of q and k, both in one launch.

    With c and s the row of cos and sin for a token's position, and R twice their width (but see
    cos), each pair (x1, x2) of the first R elements of a head becomes (x1 · c − x2 · s, x1 · s +
    x2 · c); the other elements stay. Pair i is elements i and i + R/2, or, interleaved, 2i and
    2i + 1. The position of token t is t, counted from the start of its sequence, plus the offset.

    Args:
        q: [B, S, Hq, D], float32, float16, bfloat16 or float64. Packed: [N, Hq, D].
        k: [B, S, Hk, D], q's dtype; Hk may differ from Hq, and be 0. Packed: [N, Hk, D]. None
            where q alone is to be turned.
        cos: [T, R/2], R ≤ D, q's dtype or float32: row p is for position p. [T, D] is taken as
            two equal halves, as Hugging Face's models have it: the first is read, `cos[..., :D //
            2]`, the other never is. Of a table with equal halves that is narrower, since a part of
            the head is turned, give the first half, for nothing but its values would tell; and
            where interleaved, give one column for each pair.
        sin: The same of the sines, cos's dtype.
        offsets: Added to the positions: an integer ≥ 0, or [B] (packed: [sequences]) int32 or int64
            on q's device, negative ones too; None for 0.
        interleaved: Pairs are neighbours (GPT-J), not an element of each half of R (GPT-NeoX).
        inplace: Write q and k themselves, and return them. As for torch's own functions, neither
            may be a leaf that requires a gradient, or overlap with itself or the other.
        cu_seqlens: [sequences + 1], int32 or int64, on q's device, not decreasing: sequence i is
            rows cu_seqlens[i] to cu_seqlens[i + 1] of a packed q and k. A row past the last counts
            from there.
        max_seqlen: At least the longest sequence; required with cu_seqlens, which is never read
            back from the device.

    Returns:
        q and k turned, of their shapes and q's dtype: contiguous, or q and k themselves with
        `inplace`; None for a k of None. Differentiable in q and k, to any order: the gradient is
        turned back.

    Raises:
        ValueError: A shape, a device or a number is not as above; or the tables are too short:
            T < S + offset (packed: max_seqlen + offset), with the offset 0 where it is a tensor.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, cos or sin requires a gradient, or
            differentiation is forward-mode.
        RuntimeError: `inplace` cannot write q and k: a leaf that requires a gradient, or elements
            that lie in the same memory.

    Positions past the table:
        What the host cannot see, offsets and cu_seqlens on the device, is never trusted: a position
        below 0 takes the table's first row, one of T or more its last. Nothing else is read,
        whatever the numbers are; padding on the left may have negative positions.

    Backends:
        The kernel takes bfloat16, float16 and float32, any D up to 1024, and any strides whose last
        is 1: slices of a fused projection and [B, H, S, D] transposed are read where they lie.
        Otherwise there is a copy, in place one more back, and `explain` says so. It moves 16 bytes
        at a time where addresses, strides, D and R/2 are multiples of 16 bytes, 4 bytes where they
        are of 4, else single elements.

    Numerics:
        Computed in float32 (float64 for float64), rounded once to q's dtype. The elements that are
        not turned keep their bits. The same bits on every run. Under autocast q, k and the tables
        may differ in dtype, but not `inplace`; q and k keep theirs.

    Source:
        csrc/kernels/rotary/rotary.cuh. Torch computes float64 and what is on the CPU.

    Example:
        >>> import torch, thunderkittens
        >>> q, angle = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[torch.pi / 2]])
        >>> thunderkittens.rotary(q, q, angle.cos(), angle.sin())[0].round().abs()
        tensor([[[[0., 1.]]]])
    """
    if _foreign:
        refuse_keywords("rotary", _foreign)
    if k is None:
        turned = rotary(
            q,
            _no_heads(q),
            cos,
            sin,
            offsets=offsets,
            interleaved=interleaved,
            inplace=inplace,
            cu_seqlens=cu_seqlens,
            max_seqlen=max_seqlen,
        )
        return turned[0], None
    options: tuple[object, ...] = ()  # each that is passed costs the host a fifth of a microsecond
    if cu_seqlens is not None or max_seqlen is not None:
        refuse_bool("rotary", "max_seqlen", max_seqlen)
        options = (*_split(offsets), interleaved, False, cu_seqlens, max_seqlen)
    elif offsets is not None or interleaved is not False:
        options = (*_split(offsets), interleaved)
    op = _rotary if options else _rotary_plain
    try:
        if not inplace:
            return op(q, k, cos, sin, *options)
        if torch.compiler.is_compiling():
            # Inductor loses where a view that an op writes begins, if sizes are dynamic
            # (pytorch/pytorch#198068). It knows what copy_ writes.
            turned = op(q, k, cos, sin, *options)
            return q.copy_(turned[0]), k.copy_(turned[1])
        _rotary_(q, k, cos, sin, *options)
    except RuntimeError as error:
        refuse_types("rotary", error)
        raise
    return q, k


def _no_heads(q: Tensor) -> Tensor:
    """A k beside q without elements."""
    if not isinstance(q, Tensor) or q.dim() < 2 or q.is_nested or q.layout is not torch.strided:
        return q  # which the op refuses
    return q.new_empty((*q.shape[:-2], 0, q.shape[-1]))


def _split(offsets: int | Tensor | None) -> tuple[int, Tensor | None]:
    """The offset that the host knows, and those on the device."""
    if offsets is None:
        return 0, None
    refuse_bool("rotary", "offsets", offsets)
    return (0, offsets) if isinstance(offsets, Tensor) else (offsets, None)
