"""Cross entropy of logits, and of a linear layer whose logits are in memory a chunk at a time."""

from collections.abc import Callable
from typing import Literal, NoReturn

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types

_Op = Callable[..., Tensor]
_cross_entropy: _Op = torch.ops.thunderkittens.cross_entropy.default
_cross_entropy_plain: _Op = torch.ops.thunderkittens.cross_entropy.plain
_cross_entropy_in_place: _Op = torch.ops.thunderkittens.cross_entropy_.default
_linear_cross_entropy: _Op = torch.ops.thunderkittens.linear_cross_entropy.default


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    inplace: bool = False,
    **_foreign: NoReturn,
) -> Tensor:
    """Cross entropy of each row of logits with its target, differentiable once.

    With lse = log Σⱼ exp(xⱼ), ε = label_smoothing, z = z_loss, for a row x with target t:

        loss     = lse − (1 − ε) · xₜ − (ε / V) · Σⱼ xⱼ + z · lse²
        dloss/dxⱼ = exp(xⱼ − lse) · (1 + 2 z · lse) − (1 − ε) · [j = t] − ε / V

    A call that records a gradient computes it together with the loss, in one pass over the logits;
    the backward then only multiplies it, and does nothing where the loss's own gradient is 1.

    Args:
        logits: [..., V], float32, float16, bfloat16 or float64, any strides. Rows that are one
            distance apart with contiguous elements are read in place, others from a copy.
        targets: [...], int64 or int32, the columns of the right answers: 0 … V − 1, or
            ignore_index.
        ignore_index: Rows with this target have loss 0 and gradient 0, and do not count.
        reduction: "mean" over the rows that count (NaN if there are none, as in torch), "sum", or
            "none".
        label_smoothing: How much of the target's weight goes to all columns alike; 0 … 1.
        z_loss: Weight of lse², which keeps logits near 0; finite and ≥ 0.
        inplace: Let the gradient take the place of the logits, which saves as much memory: **their
            values are lost**. They must be rows one distance apart, and no leaf that requires a
            gradient. Autograd raises where their values are needed later. Where no gradient is
            recorded, and under `torch.compile`, the logits stay.

    Returns:
        The loss, float32 (float64 for float64): one number, or [...] with reduction "none".

    Sharded:
        Logits that are a DTensor may be sharded on rows and, in one dimension of the mesh, on V:
        each process computes with its own columns, and one all_gather of three numbers a row makes
        one softmax of them. The gradient is sharded as the logits are; a mean or sum over sharded
        rows is Partial. Targets that are no DTensor are the same for all processes.

    Raises:
        ValueError: A shape, a device or a number is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        IndexError: On the CPU, a target is neither a column nor ignored. On a GPU, where nobody
            waits for the targets, its row gets NaN; under THUNDERKITTENS_STRICT=1 the kernels also
            leave it where the host sees it, and the next call of this function or of
            `linear_cross_entropy`, forward or backward, that finds it there raises, once, instead
            of doing anything: one behind `torch.cuda.synchronize()` does. While a CUDA graph is
            captured none raises; what the kernels of a graph meet that was captured under
            THUNDERKITTENS_STRICT=1 is found by the next call outside of one.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.
        RuntimeError: What a backward needs was written over in place.

    Numerics:
        Arithmetic in float32 (float64 for float64); the gradient is rounded once to the logits'
        dtype, and once more if it is multiplied by a number that is no power of two. Its
        elements that are 0, as in ignored rows, stay 0 even where the loss's own gradient is
        infinite or NaN. Logits of −inf are columns without probability. A row whose logits are all
        −inf, one with a NaN or +inf, and on a GPU one whose target is neither ignored nor a column
        gets NaN as loss and gradient (nothing outside of the tensors is read). Every finite logit
        is right, as far as the loss's own terms have a place in float32: from ±7.4e8 on, where
        neighbours in float32 are 64 and more apart, a row's probabilities are 0 and 1 / n of n
        equal largest logits, and the kernel reads the row twice. (Torch's ops, which take distances
        from the largest logit, give infinity or NaN where those, or with label_smoothing their sum,
        have none.)

        The same bits on every run. Up to 1024 columns of 16 bits, or 512 of 32, the kernel gives a
        row its loss and its gradient (before "mean" divides them) whatever other rows there are:
        the bits depend on the row, and on where it begins between two multiples of 16 bytes. Of
        wider rows it also depends on how many there are, whether a gradient is recorded, and the
        reduction, which kernel is the fastest; each adds up in an order of its own, so that losses
        and gradients of two such calls may differ by roundings.

    Source:
        Kernels for V from 1 to 16,777,216 in 16 and 32 bits:
        csrc/kernels/cross_entropy/cross_entropy_sm90.cu, and for other architectures, or under
        `backend(…, kernel="generic")`, cross_entropy.cu beside it. Torch computes everything else;
        `thunderkittens.explain` tells.

    Example:
        >>> import torch, thunderkittens
        >>> logits = torch.zeros(2, 4)
        >>> thunderkittens.cross_entropy(logits, torch.tensor([1, -100]))
        tensor(1.3863)
    """
    if _foreign:
        refuse_keywords("cross_entropy", _foreign)
    # Inductor loses where a view that an op writes begins, if sizes are dynamic
    # (pytorch/pytorch#198068).
    in_place = inplace and not torch.compiler.is_compiling()
    plain = reduction == "mean" and label_smoothing == 0.0 and z_loss == 0.0
    try:
        if plain and ignore_index == -100 and not in_place:
            return _cross_entropy_plain(logits, targets)
        op = _cross_entropy_in_place if in_place else _cross_entropy
        return op(logits, targets, ignore_index, reduction, label_smoothing, z_loss)
    except RuntimeError as error:
        refuse_types("cross_entropy", error)
        raise


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    **_foreign: NoReturn,
) -> Tensor:
    """Cross entropy of the logits x · weightᵀ + bias, which are in memory a chunk at a time.

    The rows of x go through in chunks: torch's matrix product makes a chunk's logits,
    `cross_entropy` their loss and, in their place, their gradient, of which two more products make
    the gradients of x and of weight. They are computed in the forward, and the backward multiplies
    them by the loss's own gradient; with reduction "none" the backward goes through the chunks once
    more, and computes the logits again.

    A chunk has as many rows as a power of two can be with logits of at most 256 MiB, or of weight's
    size where that is more; and 16 at least. Beside it there are the gradients and, where weight
    has 16 bits and there are several chunks, a float32 sum of weight's shape. Where the logits of
    all rows take no more memory than that sum, which is so up to 2 · H rows, there is one chunk.

    Args:
        x: [..., H], float32, float16, bfloat16 or float64, any strides.
        weight: [V, H], x's dtype.
        targets: [...], int64 or int32.
        bias: [V], x's dtype, or None.
        ignore_index: As in `cross_entropy`, like all that follow.
        reduction: "mean", "sum" or "none".
        label_smoothing: 0 … 1.
        z_loss: Finite and ≥ 0.

    Returns:
        The loss, float32 (float64 for float64): one number, or [...] with reduction "none".

    Raises:
        Exception: As `cross_entropy`.

    Numerics:
        Logits are rounded to x's dtype, as `torch.nn.functional.linear` rounds them; from there on
        as in `cross_entropy`, whose gradients of the logits are rounded to x's dtype too. The
        gradients of weight and bias are summed up over the chunks in float32 (float64 for float64),
        and rounded once. Where x has 16 bits and V is no multiple of 8, the last columns have
        products of their own, which are fast only so; dx is the float32 sum of both, rounded once.
        Torch's switches for products hold here too: `allow_bf16_reduced_precision_reduction` and
        its like let them round parts of a sum to 16 bits. Under autocast x, weight and bias take
        its dtype. The same bits on every run, as far as torch's products give them, which may
        depend on how many rows there are. Ignored rows get zeros in dx whatever the loss's own
        gradient is.

    Example:
        >>> import torch, thunderkittens
        >>> x, weight = torch.zeros(3, 8), torch.ones(4, 8)
        >>> thunderkittens.linear_cross_entropy(x, weight, torch.tensor([0, 1, 2]))
        tensor(1.3863)
    """
    if _foreign:
        refuse_keywords("linear_cross_entropy", _foreign)
    try:
        return _linear_cross_entropy(
            x, weight, targets, bias, ignore_index, reduction, label_smoothing, z_loss
        )
    except RuntimeError as error:
        refuse_types("linear_cross_entropy", error)
        raise
