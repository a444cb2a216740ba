"""A linear layer of a few rows, with what follows it."""

from collections.abc import Callable
from typing import Literal, NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types

_linear: Callable[..., Tensor] = torch.ops.thunderkittens.linear.default

NO_NORM = (None, 1e-6)  # the defaults of norm_weight and norm_eps


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    activation: Literal["none", "swiglu"] | None = "none",
    norm: tuple[Tensor, float] | None = None,
    weight_is_constant: bool = False,
    **_foreign: NoReturn,
) -> Tensor:
    """A linear layer: y = act(z Wᵀ + b) + residual, where few rows of x meet a large weight.

    z is x or, with `norm=(weight, eps)`, its RMSNorm: z = x · weight / sqrt(mean(x²) + eps), over
    the last dimension.

    What a step of decoding is made of. With one to 16 rows the kernel reads the weight once, at the
    speed of memory; on Hopper, with one to 64, if the weight has many rows (N of 128000 and more,
    2 N of 12288 and more for "swiglu"). Else torch's matrix product, which is faster then, computes
    the same, without a warning.

    With `activation="swiglu"`, the first half of the weight's rows (and of the bias) makes gate and
    the second half makes up, as in torch.cat([gate_proj.weight, up_proj.weight]), and
    act = silu(gate) · up.

    Args:
        x: [..., K], float32, float16, bfloat16 or float64. The rows are all leading dimensions
            together.
        weight: [N, K], x's dtype, as of torch.nn.Linear; for "swiglu" [2 N, K].
        bias: [N], x's dtype; for "swiglu" [2 N]. None for none.
        residual: [..., N], x's dtype and leading dimensions: added last. None for none.
        activation: "none", which None is too, or "swiglu".
        norm: The norm's weight, [K], x's dtype, and its eps, at least 0. None for none.
        weight_is_constant: Promises that the kernel in front of this call does not write the
            weight, which is then read before that has ended: see below.

    Returns:
        y, [..., N], x's dtype, contiguous.

    Raises:
        ValueError: A shape, a device or a word is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested.

    Backends:
        The kernels (two for Hopper, of up to 16 and of 17 to 64 rows, and a generic one of up to 16
        rows for compute capability 8.0 and later) take bfloat16 and, without a norm, float16, and
        weights whose rows start at multiples of 16 bytes (K a multiple of 8, if contiguous); torch
        computes the rest. One launch, in which every block has columns of y of its own. Where a
        gradient is needed torch's own ops compute the call, so it is differentiable, any number of
        times. (`explain` answers for a call under torch.no_grad().)

    A promise:
        With `weight_is_constant=True` the kernel begins to read the weight while the kernel
        directly in front of it on the stream still runs (programmatic dependent launch); x and all
        else it reads when that has ended. The bits are the same. So the kernel in front, torch's
        or anybody's, must not write the weight: no optimizer's step, `load_state_dict` or `copy_`,
        and no op whose result the weight is, stands directly in front of the call, nor anywhere in
        a function that torch.compile compiles. Behind one more kernel, or
        `torch.cuda.synchronize()`, it may have been written. Where the promise is broken, what was
        there before may be multiplied, without an error. It is for inference: where a gradient is
        needed, or torch computes the call, it changes nothing. docs/backends.md has all of it.

    Numerics:
        Products and sums in float32, rounded to x's dtype once, at the end. The same bits on every
        run, and for a row of x the same whatever other rows there are, up to 16 of them, and from
        17 to 64; torch's path rounds the product before each of what follows. With a norm,
        x · weight is rounded to x's dtype, and the sums are divided by the root of the mean square,
        where torch's path rounds z.

    Source:
        csrc/kernels/linear: linear.cuh by TMA, linear_rows.cuh by TMA and wgmma, linear_generic.cuh
        by cp.async. For each 16 to 128 columns of y, x is read once, from the L2 cache.

    Example:
        >>> import torch, thunderkittens
        >>> x, gate_up = torch.randn(2, 1, 64), torch.randn(2 * 96, 64)
        >>> thunderkittens.linear(x, gate_up, activation="swiglu").shape
        torch.Size([2, 1, 96])
    """
    if _foreign:
        refuse_keywords("linear", _foreign)
    try:
        act = "none" if activation is None else activation
        with_eps = NO_NORM if norm is None else weight_and_eps("linear", norm)
        return _linear(x, weight, bias, residual, act, *with_eps, weight_is_constant)
    except RuntimeError as error:
        refuse_types("linear", error)
        raise


def weight_and_eps(op: str, norm: object) -> tuple[Tensor, float]:
    """The parts of the norm of a call of `op`, which checks each."""
    if not isinstance(norm, tuple) or len(norm) != 2:
        got = f"one of {len(norm)}" if isinstance(norm, tuple) else type(norm).__name__
        raise TypeError(f"{op}: norm must be a tuple (weight, eps) or None, got {got}")
    return norm
