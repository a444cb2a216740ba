"""Mamba-2's state-space dual."""

import math
from collections.abc import Callable
from typing import Literal, NoReturn, overload

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types
from thunderkittens.ops.activation import swiglu

_Op = Callable[..., Tensor | tuple[Tensor, Tensor]]
_mamba2: _Op = torch.ops.thunderkittens.mamba2.default
_mamba2_forward: _Op = torch.ops.thunderkittens.mamba2_forward.default


@overload
def mamba2(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = ...,
    z: Tensor | None = ...,
    dt_bias: Tensor | None = ...,
    dt_softplus: bool = ...,
    dt_limit: tuple[float, float] | None = ...,
    initial_state: Tensor | None = ...,
    return_final_state: Literal[False] = ...,
    cu_seqlens: Tensor | None = ...,
) -> Tensor: ...
@overload
def mamba2(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = ...,
    z: Tensor | None = ...,
    dt_bias: Tensor | None = ...,
    dt_softplus: bool = ...,
    dt_limit: tuple[float, float] | None = ...,
    initial_state: Tensor | None = ...,
    return_final_state: Literal[True],
    cu_seqlens: Tensor | None = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def mamba2(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = ...,
    z: Tensor | None = ...,
    dt_bias: Tensor | None = ...,
    dt_softplus: bool = ...,
    dt_limit: tuple[float, float] | None = ...,
    initial_state: Tensor | None = ...,
    return_final_state: bool,
    cu_seqlens: Tensor | None = ...,
) -> Tensor | tuple[Tensor, Tensor]: ...
def mamba2(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] | None = None,
    initial_state: Tensor | None = None,
    return_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    **_foreign: NoReturn,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mamba-2's state-space dual (SSD): mamba_ssm's `mamba_chunk_scan_combined`.

    dt'(t) = clamp(softplus(dt(t) + dt_bias), dt_limit), and for each head

    S(t) = exp(dt'(t) A) S(t − 1) + dt'(t) x(t) B(t)ᵀ, y(t) = S(t) C(t) + D x(t); with z,
    y · silu(z).

    Args:
        x: [B, S, H, P], float32, float16, bfloat16 or float64, any strides.
        dt: [B, S, H], x's dtype or float32: the steps, before bias and softplus.
        A: [H], at most 0; float32 (float64 for float64).
        B: [B, S, G, N], x's dtype, H a multiple of G: head h reads group h // (H / G) of B and C.
        C: The same.
        D: [H], or [H, P], x's dtype or float32: of x in y. None for 0.
        z: As x: the gate of y. None for none.
        dt_bias: [H], x's dtype or float32. None for 0.
        dt_softplus: Whether dt' is softplus of the sum; above 20 it is the sum itself.
        dt_limit: The least dt', at least 0, and the largest. None for (0, inf).
        initial_state: S before the first token, [B, H, P, N], float32 (float64 for float64). None
            for zeros.
        return_final_state: Also return the state after the last token.
        cu_seqlens: [M + 1], int32 or int64, where M sequences packed one behind the other start and
            the last one ends: x, z [T, H, P], dt [T, H], B, C [T, G, N], states [M, …]. It stays on
            the device. What is out of range is clamped; of a token of no sequence y, before z, and
            all gradients are 0, whatever it holds.

    Returns:
        y, as x, x's dtype, contiguous; with `return_final_state` (y, state), state
        [B, H, P, N], float32 (float64 for float64). Both are differentiable, in all tensors, once.

    Raises:
        ValueError: A shape, a device or a limit is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Backends:
        The kernels (sm_90a) take bfloat16 and float16, P and N of 8, 16 … 128 and any S; torch
        computes the rest, such as N = 256, by the same chunks. They are `linear_attention`'s, with
        C, B and x as q, k and v, of which dt' is a weight and D x is added to o; a small one
        before it makes dt' and dt' A. x, B and C are read where they lie if the last stride is 1
        and address and other strides are multiples of 16 bytes; otherwise they are copied, and
        `explain` says so. dt may have any strides. The backward saves the inputs alone. z is
        `swiglu`, a pass of its own; D of [H, P] is torch's. Torch, where it computes packed
        sequences, fills each up to whole chunks, and does not read cu_seqlens back either: such
        calls, too, can be captured in a CUDA graph.

    Numerics:
        As `linear_attention`; dt' and dt' A are float32. The gradient of dt' A is found anew every
        128 tokens, so that errors do not grow with the length of a sequence: in bf16, of random
        numbers on an H100, that of dt is off by 0.2 to 0.4 % of its norm, and those of A and
        dt_bias, sums over all tokens of both signs, by 0.2 to 3.8 %, over sequences of 4,096 and of
        65,536 tokens. Under autocast x, B and C take its dtype, and of dt, D and dt_bias those that
        are not float32. With z, y has x's dtype before its gate, too: in float16 it is infinite
        above 65,504 there. With D of [H, P], products x dy are rounded to the dtype that x and D
        make before D's gradient adds them up. The same bits on every run. Packed sequences are
        apart, as there; the gradients of A, D and dt_bias are sums over all.

    Source:
        csrc/kernels/mamba2. Dao and Gu, Transformers are SSMs (2024), sections 5 and 6.

    Example:
        >>> import torch, thunderkittens
        >>> x, dt = torch.randn(2, 5, 4, 16), torch.randn(2, 5, 4)
        >>> B, C = torch.randn(2, 2, 5, 1, 8).unbind()
        >>> y = thunderkittens.mamba2(x, dt, -torch.rand(4), B, C, dt_softplus=True)
        >>> y.shape
        torch.Size([2, 5, 4, 16])
    """
    if _foreign:
        refuse_keywords("mamba2", _foreign)
    wide = D if isinstance(D, Tensor) and D.dim() == 2 else None  # for torch
    try:
        least, most = (0.0, None) if dt_limit is None else _limits(dt_limit)
        result = (_mamba2_forward if return_final_state else _mamba2)(
            x,
            dt,
            A,
            B,
            C,
            D if wide is None else None,
            dt_bias,
            dt_softplus,
            least,
            most,
            initial_state,
            cu_seqlens,
        )
    except RuntimeError as error:
        refuse_types("mamba2", error)
        raise
    if wide is None and z is None:
        return result
    y, *states = result if isinstance(result, tuple) else (result,)
    if wide is not None:
        _check_shape("D", wide, x.shape[-2:])
        if cu_seqlens is None:
            y = _with_skip(y, x, wide)
        else:  # of no sequence: 0, and nothing to the gradients
            known = _is_of_a_sequence(len(x), cu_seqlens)[:, None, None]
            y = _with_skip(y, x.where(known, 0), wide).where(known, 0)
    if z is not None:
        _check_shape("z", z, x.shape)
        y = swiglu(z, y)
    return (y, states[0]) if states else y


def _with_skip(y: Tensor, x: Tensor, D: Tensor) -> Tensor:
    """y + D x in y's dtype: the product is not rounded, as a tensor of its own would be."""
    return torch.addcmul(y, x, D).to(y.dtype)


def _is_of_a_sequence(length: int, cu_seqlens: Tensor) -> Tensor:
    """Of each of the tokens, [length]."""
    tokens = torch.arange(length, device=cu_seqlens.device)
    return (tokens >= cu_seqlens[0]) & (tokens < cu_seqlens[-1])


def _limits(given: tuple[float, float]) -> tuple[float, float | None]:
    """The two as the op takes them, None for infinity."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"mamba2: dt_limit must be two numbers, got {type(given).__name__}")
    least, most = given
    return least, None if most == math.inf else most


def _check_shape(name: str, given: Tensor, shape: torch.Size) -> None:
    """Raises unless what the op knows nothing of has x's shape, or a part of it."""
    if not isinstance(given, Tensor):
        raise TypeError(f"mamba2: {name} must be a tensor or None, got {type(given).__name__}")
    if given.shape != shape:
        raise ValueError(f"mamba2: {name} must have shape {list(shape)}, got {list(given.shape)}")
