"""AdamW on one parameter."""

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_bool, refuse_keywords, refuse_types

_adamw: Callable[..., None] = torch.ops.thunderkittens.adamw.default


def adamw(
    grad: Tensor,
    param: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    grad_norm: Tensor | None = None,
    *,
    step: int,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    maximize: bool = False,
    max_norm: float | None = None,
    skip_nonfinite: bool = False,
    stochastic_rounding: bool = False,
    seed: int = 0,
    **_foreign: NoReturn,
) -> None:
    """One step of AdamW on one parameter, in place, for training loops of one's own.

    With g = grad (−grad to maximize), times min(1, max_norm / (grad_norm + 10⁻⁶)) if `max_norm` is
    given, and t = step:

    m ← m + (1 − β1) · (g − m); v ← β2 · v + (1 − β2) · g²;

    p ← p − lr · ((m / (1 − β1^t)) / (√(v / (1 − β2^t)) + eps) + weight_decay · p).

    `thunderkittens.optim.AdamW` does this for all parameters of a model in one launch.

    Args:
        grad: [...], float32, float16, bfloat16 or float64, any strides.
        param: [...], p, grad's dtype; updated in place, as all tensors behind it are.
        exp_avg: [...], m, float32 or bfloat16 whatever grad's dtype (or grad's own, by torch), 0
            before the first step.
        exp_avg_sq: [...], v, exp_avg's dtype, 0 before the first step.
        grad_norm: One element, float32 or float64, on grad's device: the norm of all gradients of
            the model. None: that of grad, if max_norm or skip_nonfinite needs one.
        step: t, the number of this step, from 1.
        lr: The learning rate.
        beta1: β1, at least 0 and below 1.
        beta2: β2, the same.
        eps: At least 0.
        weight_decay: Decoupled from the moments.
        maximize: Goes up the gradient.
        max_norm: At least 0. None: gradients are not clipped.
        skip_nonfinite: Where the norm is infinite or NaN, nothing is written, and nothing is read
            back.
        stochastic_rounding: What is bfloat16 is rounded up or down at random, so that it is right
            on average.
        seed: Of those random numbers: what an element gets follows from seed, step and its number.

    Returns:
        None: param, exp_avg and exp_avg_sq are what is written.

    Raises:
        ValueError: A shape, a device or a number is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor requires a gradient (call it under torch.no_grad()), or is
            sparse or nested.
        RuntimeError: A tensor that is written overlaps with itself or another.

    Numerics:
        In float32 (float64 for float64), rounded once where a tensor is written. The error of p
        before that is at most lr · (2⁻¹⁹ · q + 2⁻²² · |weight_decay · p|), q the quotient with
        β1 · |m| + (1 − β1) · |g| in place of m: the product of learning rate and decay is never
        added to 1. The numbers of torch.optim.AdamW, which rounds more often, lie within its own
        roundings of them.

        Torch clips by multiplying the gradients, rounding them to their dtype; here they stay what
        they are, and the factor acts in float32.

    Backends:
        The kernel, one launch (two with a norm of its own), takes param of float32, bfloat16 and
        float16 with moments of float32 or bfloat16 where param and the moments are dense and have
        the same strides (grad is copied if it has others). Torch computes float64, float16 moments
        and stochastic rounding beside float16.

    Source:
        csrc/kernels/adamw/adamw_update.cuh; Loshchilov and Hutter, "Decoupled weight decay
        regularization", ICLR 2019.

    Example:
        >>> import torch, thunderkittens
        >>> p, m, v = torch.ones(3, 2)
        >>> thunderkittens.adamw(torch.ones(2), p, m.zero_(), v.zero_(), step=1, lr=0.25)
        >>> p
        tensor([0.7475, 0.7475])
    """
    if _foreign:
        refuse_keywords("adamw", _foreign)
    refuse_bool("adamw", "step", step)
    try:
        _adamw(
            grad,
            param,
            exp_avg,
            exp_avg_sq,
            grad_norm,
            step=step,
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            maximize=maximize,
            max_norm=max_norm,
            skip_nonfinite=skip_nonfinite,
            stochastic_rounding=stochastic_rounding,
            seed=seed,
        )
    except RuntimeError as error:
        refuse_types("adamw", error)
        raise
