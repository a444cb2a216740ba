"""Based's linear attention: the second-order Taylor expansion of the exponential."""

from typing import Literal, NoReturn, TypeAlias, overload

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types

_State: TypeAlias = Tensor | tuple[Tensor, Tensor]


@overload
def based_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = ...,
    normalize: bool = ...,
    eps: float = ...,
    initial_state: _State | None = ...,
    output_final_state: Literal[False] = ...,
) -> Tensor: ...
@overload
def based_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = ...,
    normalize: Literal[True] = ...,
    eps: float = ...,
    initial_state: tuple[Tensor, Tensor] | None = ...,
    output_final_state: Literal[True],
) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...
@overload
def based_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = ...,
    normalize: Literal[False],
    eps: float = ...,
    initial_state: Tensor | None = ...,
    output_final_state: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@overload
def based_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = ...,
    normalize: bool = ...,
    eps: float = ...,
    initial_state: _State | None = ...,
    output_final_state: bool,
) -> Tensor | tuple[Tensor, _State]: ...
def based_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    normalize: bool = True,
    eps: float = 1e-12,
    initial_state: _State | None = None,
    output_final_state: bool = False,
    **_foreign: NoReturn,
) -> Tensor | tuple[Tensor, _State]:
    """Causal linear attention of Based: the weights are exp(s) up to the second order.

    With s(i, j) = scale · q(i) · k(j) and A = 1 + s + s²/2, of each head

        o(i) = Σ(j ≤ i) A(i, j) v(j) / (Σ(j ≤ i) A(i, j) + eps),

    and without `normalize` the sum alone. A(i, j) is φ(q(i)) · φ(k(j)) with the features of
    `based_features`, F = 1 + D + D (D + 1) / 2 of them, so that time is linear in the length: what
    came before a token is the state S = Σ φ(k(j)) v(j)ᵀ, and z = Σ φ(k(j)) for the denominator.

    Args:
        q: [B, S, H, D], float32, float16, bfloat16 or float64, any strides.
        k: [B, S, H, D], q's dtype.
        v: [B, S, H, V], q's dtype.
        scale: Of the scores, above 0; None for 1 / sqrt(D).
        normalize: Divide by the sum of the weights, which is at least i / 2.
        eps: Added to the sum of the weights; at least 0.
        initial_state: What came before the first token: (S, z), [B, H, F, V] and [B, H, F], float32
            (float64 for float64); without `normalize` S alone. None for nothing.
        output_final_state: Also return the state after the last token.

    Returns:
        o, [B, S, H, V], q's dtype, contiguous; with `output_final_state` (o, state), state as the
        initial one. All are differentiable, in q, k, v and the initial state, once.

    Raises:
        ValueError: A shape, a device or a number is not as above.
        TypeError: A dtype or an argument's Python type is not as above, or the state is no pair
            where there is `normalize`, no tensor where there is none.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Backends:
        The kernel (sm_90a) takes bfloat16 and float16, D of 8 and 16, V a multiple of 8 (up to 64
        where there are gradients) and any S; torch computes the rest, by the same chunks. q, k, v
        and the gradient of o are read where they lie if the last stride is 1 and address and other
        strides are multiples of 16 bytes, none of them 0; otherwise they are copied, and `explain`
        says so of q, k and v. A block has 64 columns of one head's v; where these are fewer than
        what the GPU runs at a time, sequences are cut into segments, whose states are found first:
        q is then read once, k and v twice. The backward saves the inputs alone, and is two more
        passes: dq, which finds the denominators again, and dk with dv, from the last token to the
        first.

    Numerics:
        Chunks of 64 tokens. Products take operands in q's dtype and accumulate in float32: weights
        within a chunk, features and the state before each chunk are rounded to q's dtype; the state
        itself, and all that the denominator is made of, stay in float32. Of float16, products of
        two elements of q or k and the state times `scale` must stay below 65504. Torch computes in
        float32 (float64 for float64). Under autocast q, k and v take its dtype. The same bits on
        every run.

    Source:
        csrc/kernels/based_attention. Arora et al., Simple linear attention language models balance
        the recall-throughput tradeoff (2024).

    Example:
        >>> import torch, thunderkittens
        >>> q, k = torch.randn(2, 2, 5, 4, 16).unbind()
        >>> v = torch.randn(2, 5, 4, 64)
        >>> o, (S, z) = thunderkittens.based_attention(q, k, v, output_final_state=True)
        >>> o.shape, S.shape, z.shape
        (torch.Size([2, 5, 4, 64]), torch.Size([2, 4, 153, 64]), torch.Size([2, 4, 153]))
    """
    if _foreign:
        refuse_keywords("based_attention", _foreign)
    if not isinstance(output_final_state, bool):
        raise TypeError(
            f"based_attention: output_final_state must be True or False, got {output_final_state!r}"
        )
    state, sums = parts_of("based_attention", "initial_state", initial_state, normalize)
    ops = torch.ops.thunderkittens
    try:
        if not output_final_state:
            y: Tensor = ops.based_attention.default(q, k, v, normalize, eps, scale, state, sums)
            return y
        o, state, sums = ops.based_attention_forward.default(
            q, k, v, normalize, eps, scale, state, sums
        )
    except RuntimeError as error:
        refuse_types("based_attention", error)
        raise
    return o, (state, sums) if normalize else state


def based_features(x: Tensor, *, scale: float | None = None) -> Tensor:
    """The features φ of `based_attention`: φ(q) · φ(k) = 1 + s + s²/2, s = scale · q · k.

    In this order, which is that of the state's rows: 1; √scale · x(e) for each e; for each e ≤ f,
    those with e = 0 first, scale · x(e) x(f), and of e = f scale / √2 · x(e)². Twice an element off
    the diagonal of x xᵀ is one feature: they are 1 + D + D (D + 1) / 2, 153 of D = 16.

    So φ(q) pairs with a state: φ(q)ᵀ S is the sum of weights and values over all its tokens, and
    φ(q) · z the sum of their weights.

    Args:
        x: [..., D], any floating dtype.
        scale: That of the scores, above 0; None for 1 / sqrt(D).

    Returns:
        [..., 1 + D + D (D + 1) / 2], x's dtype; computed by torch, differentiable.

    Raises:
        ValueError: scale is not above 0.

    Example:
        >>> import torch, thunderkittens
        >>> q, k = torch.randn(2, 16, dtype=torch.float64).unbind()
        >>> s = (q * k).sum() / 4
        >>> product = (thunderkittens.based_features(q) * thunderkittens.based_features(k)).sum()
        >>> bool(torch.isclose(product, 1 + s + s * s / 2))
        True
    """
    width = x.shape[-1]
    scale = _checked_scale("based_features", scale, width)
    first, second = torch.triu_indices(width, width, device=x.device).unbind()
    weights = torch.full(first.shape, scale, dtype=x.dtype, device=x.device)
    weights = torch.where(first == second, weights * 0.5**0.5, weights)
    # Each element of x xᵀ once: where an index comes twice, a GPU adds gradients up in any order.
    squares = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
    products = squares.index_select(-1, first * width + second) * weights
    return torch.cat([x.new_ones(*x.shape[:-1], 1), scale**0.5 * x, products], -1)


def parts_of(
    op: str, name: str, state: _State | None, normalize: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The state and its sums, of what a caller gave."""
    if state is None:
        return None, None
    if normalize is True and not (isinstance(state, tuple) and len(state) == 2):
        raise TypeError(
            f"{op}: {name} must be a pair (S, z) with normalize, got {type(state).__name__}"
        )
    if normalize is False and not isinstance(state, Tensor):
        raise TypeError(
            f"{op}: {name} must be a tensor without normalize, got {type(state).__name__}"
        )
    return state if isinstance(state, tuple) else (state, None)


def _checked_scale(op: str, scale: float | None, width: int) -> float:
    if scale is None:
        return width**-0.5 if width > 0 else 1.0
    if not scale > 0:
        raise ValueError(f"{op}: scale must be above 0, got {scale}")
    return scale
