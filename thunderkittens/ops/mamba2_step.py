"""Mamba-2's recurrence, one token of decode."""

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types
from thunderkittens.ops._views import writes_views

_ops = torch.ops.thunderkittens
_mamba2_step: Callable[..., Tensor] = _ops.mamba2_step.default
_functional: Callable[..., tuple[Tensor, Tensor]] = _ops.mamba2_step_functional.default


def mamba2_step(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    state: Tensor,
    *,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_indices: Tensor | None = None,
    **_foreign: NoReturn,
) -> Tensor:
    """One token of `mamba2`: its states are updated in place. mamba_ssm's `selective_state_update`.

    dt' = softplus(dt + dt_bias), S ← exp(dt' A) S + dt' x Bᵀ, y = S C + D x; with z, y · silu(z).
    (As there, and unlike `mamba2`, dt' has no limits.)

    Args:
        x: [B, H, P], float32, float16, bfloat16 or float64.
        dt: [B, H], x's dtype or float32: the steps, before bias and softplus.
        A: [H], at most 0; float32 (float64 for float64).
        B: [B, G, N], x's dtype, H a multiple of G: head h reads group h // (H / G) of B and C.
        C: The same.
        state: S, [B, H, P, N], float32 (float64 for float64), updated in place: what `mamba2`
            returns as the final state. With `state_indices` [M, H, P, N], any M.
        D: [H], x's dtype or float32. None for 0.
        z: As x: the gate of y. None for none.
        dt_bias: [H], x's dtype or float32. None for 0.
        dt_softplus: Whether dt' is softplus of the sum; above 20 it is the sum itself.
        state_indices: [B], int32 or int64: which of the states is each batch's. All different, but
            those that are of no state, as −1: they are padding's, whose y is 0. None for 0, 1 ….

    Returns:
        y, [B, H, P], x's dtype, contiguous.

    Raises:
        ValueError: A shape or a device is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: An argument requires a gradient, or is sparse or nested.
        RuntimeError: `state` overlaps with itself.

    Backends:
        The kernel (any architecture) takes float32, float16 and bfloat16 and N up to 256, and
        states whose last stride is 1; torch computes the rest. It reads and writes each state
        once, by 16 bytes if all rows start at multiples of them; indices are not read back.

    Numerics:
        All in float32 (float64 for float64); y is rounded once. The same bits on every run.

    Source:
        csrc/kernels/mamba2. Dao and Gu, Transformers are SSMs (2024).

    Example:
        >>> import torch, thunderkittens
        >>> state = torch.zeros(2, 4, 16, 8)
        >>> x, dt, A = torch.randn(2, 4, 16), torch.randn(2, 4), -torch.rand(4)
        >>> B, C = torch.randn(2, 2, 1, 8).unbind()
        >>> thunderkittens.mamba2_step(x, dt, A, B, C, state, dt_softplus=True).shape
        torch.Size([2, 4, 16])
    """
    if _foreign:
        refuse_keywords("mamba2_step", _foreign)
    given = (x, dt, A, B, C, state, D, z, dt_bias, dt_softplus, state_indices)
    try:
        if writes_views(state):
            y, updated = _functional(*given)
            state.copy_(updated)
            return y
        return _mamba2_step(*given)
    except RuntimeError as error:
        refuse_types("mamba2_step", error)
        raise
