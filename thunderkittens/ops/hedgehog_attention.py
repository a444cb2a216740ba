"""Hedgehog attention."""

from collections.abc import Callable
from typing import Literal, NamedTuple, NoReturn, overload

import torch
from torch import Tensor

from thunderkittens.ops._mistakes import refuse_keywords, refuse_types
from thunderkittens.ops._views import writes_views

_hedgehog_attention: Callable[..., Tensor] = torch.ops.thunderkittens.hedgehog_attention.default
_hedgehog_attention_forward: Callable[..., tuple[Tensor, Tensor, Tensor]] = (
    torch.ops.thunderkittens.hedgehog_attention_forward.default
)
_hedgehog_attention_step: Callable[..., Tensor] = (
    torch.ops.thunderkittens.hedgehog_attention_step.default
)
_functional_step: Callable[..., tuple[Tensor, ...]] = (
    torch.ops.thunderkittens.hedgehog_attention_step_functional.default
)
_WINDOW = 64  # tokens


class HedgehogState(NamedTuple):
    """What `hedgehog_attention` needs of the tokens before a sequence.

    The last 64 tokens themselves, which the next ones attend to by softmax, and sums over all those
    before them. Of an empty sequence it is the state before the first token.

    Attributes:
        kv_state: Σ φ(k) vᵀ over all tokens but the last 64, [B, H, 2 F, E], float32 (float64 for
            float64).
        k_state: Σ φ(k) over the same, [B, H, 2 F], likewise.
        k_cache: k of the last 64 tokens, [B, 64, H, D], token t in place t % 64; zeros where there
            are fewer.
        v_cache: v of the same, [B, 64, H, E].
        length: How many tokens there have been, [B], int64 or int32.
    """

    kv_state: Tensor
    k_state: Tensor
    k_cache: Tensor
    v_cache: Tensor
    length: Tensor


@overload
def hedgehog_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_map: Tensor,
    k_map: Tensor,
    *,
    alpha: Tensor,
    beta: Tensor,
    initial_state: HedgehogState | None = ...,
    output_final_state: Literal[False] = ...,
) -> Tensor: ...
@overload
def hedgehog_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_map: Tensor,
    k_map: Tensor,
    *,
    alpha: Tensor,
    beta: Tensor,
    initial_state: HedgehogState | None = ...,
    output_final_state: Literal[True],
) -> tuple[Tensor, HedgehogState]: ...
@overload
def hedgehog_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_map: Tensor,
    k_map: Tensor,
    *,
    alpha: Tensor,
    beta: Tensor,
    initial_state: HedgehogState | None = ...,
    output_final_state: bool,
) -> Tensor | tuple[Tensor, HedgehogState]: ...
def hedgehog_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_map: Tensor,
    k_map: Tensor,
    *,
    alpha: Tensor,
    beta: Tensor,
    initial_state: HedgehogState | None = None,
    output_final_state: bool = False,
    **_foreign: NoReturn,
) -> Tensor | tuple[Tensor, HedgehogState]:
    """Softmax over a window of the latest keys, linear attention by learned features before it.

    Queries come in blocks of 64 tokens. A block's window is the 64 keys before it, and of its own
    those up to each query. With φ(x) = [softmax(x W), softmax(−x W)], of q by its map and of k by
    its own, s(i, j) = q(i) · k(j) / sqrt(D) and m(i) the largest s(i, j) in the window,

        a(i, j) = beta · exp(s(i, j) − m(i))   j in the window of i
        a(i, j) = alpha · φ(q(i)) · φ(k(j))    j before it
        y(i) = Σ(j) a(i, j) v(j) / Σ(j) a(i, j)

    for each head: LoLCATs' attention. Time is linear in the length.

    Args:
        q: [B, S, H, D], float32, float16, bfloat16 or float64, any strides; rotary embeddings, if
            there are any, come before.
        k: [B, S, H, D], q's dtype.
        v: [B, S, H, E], q's dtype.
        q_map: W of q, [H, D, F], q's dtype: φ has 2 F features.
        k_map: W of k, the same.
        alpha: Weight of what is linear, [H], float32 (float64 for float64).
        beta: Weight of the window, the same.
        initial_state: The state before the first token, as a call before this one has left it. None
            for a beginning.
        output_final_state: Also return the state after the last token.

    Returns:
        y, [B, S, H, E], q's dtype, contiguous; with `output_final_state` (y, state), a
        `HedgehogState`. All is differentiable, in all tensors of the arguments, once.

        A sequence that is cut at a multiple of 64 tokens, the second piece begun with the first
        one's state, gives what the whole gives. Blocks are counted from the first token of a call:
        cut elsewhere, the second piece's windows are others, of 64 tokens and more all the same.

    Raises:
        ValueError: A shape or a device is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, the backward is differentiated, or
            differentiation is forward-mode.

    Backends:
        The kernels (sm_90a, and generic ones) take bfloat16 and float16, D and E of 8, 16 … 128,
        F = 64 and any S; torch computes the rest, by the same blocks. Their products are those of
        128 columns, but for the forward on sm_90a where D and E are at most 64. q, k and v are read
        where they lie if the last stride is 1 and address and other strides are multiples of 16
        bytes, none of them 0; otherwise they are copied, and `explain` says so. A block of threads
        has one head; where heads are fewer than the GPU's multiprocessors, sequences are cut into
        segments, whose states are found first: k and v are then read twice. With `initial_state`, k
        and v are copied behind the window before them.

        So are gradients kernels', of the same calls, unless there is an `initial_state` or the
        final state is differentiated: those are torch's, and `explain` says so of tensors that
        require a gradient. The backward saves the inputs alone. Its kernels take memory for a state
        [2 F, E] of each block of 64 tokens in q's dtype, as much as four of q, and for 16 bytes a
        token and head; torch's for several such states in float32.

    Numerics:
        m is exact: no exponent is above 0. Products take operands in q's dtype and accumulate in
        float32: features, weights and the state before each pair of blocks are rounded to q's
        dtype; the state itself stays in float32. Of float16 it must stay below 65504. In the
        backward what a block adds to the state, and to its gradient, is rounded too, and so are the
        gradients of scores and of x W. Torch computes in float32 (float64 for float64). Where
        several scores of a window are the largest, each has its part of m's gradient. Under
        autocast q, k, v and the maps take its dtype. The same bits on every run. Where beta is 0,
        the first rows are 0 / 0.

    Source:
        csrc/kernels/hedgehog_attention. Zhang et al., The Hedgehog and the Porcupine (2024); Zhang
        et al., LoLCATs (2024), section 3.

    Example:
        >>> import torch, thunderkittens
        >>> q, k, v = torch.randn(3, 2, 100, 4, 16).unbind()
        >>> q_map, k_map = torch.randn(2, 4, 16, 8).unbind()
        >>> y, state = thunderkittens.hedgehog_attention(
        ...     q,
        ...     k,
        ...     v,
        ...     q_map,
        ...     k_map,
        ...     alpha=torch.full((4,), 0.5),
        ...     beta=torch.full((4,), 0.5),
        ...     output_final_state=True,
        ... )
        >>> y.shape, state.kv_state.shape, state.k_cache.shape
        (torch.Size([2, 100, 4, 16]), torch.Size([2, 4, 16, 16]), torch.Size([2, 64, 4, 16]))
    """
    if _foreign:
        refuse_keywords("hedgehog_attention", _foreign)
    kv_state = k_state = first = None
    keys, values = k, v
    try:
        if initial_state is not None:
            kv_state, k_state, k_cache, v_cache, length = _fields(
                "hedgehog_attention: initial_state", "a HedgehogState or None", initial_state
            )
            places = _places(length)
            keys = torch.cat([_take(k_cache, places), k], 1)
            values = torch.cat([_take(v_cache, places), v], 1)
            first = (_WINDOW - length).clamp(min=0)
        given = (q, keys, values, q_map, k_map, alpha, beta, kv_state, k_state, first)
        if not output_final_state:
            return _hedgehog_attention(*given)
        y, kv_state, k_state = _hedgehog_attention_forward(*given)
    except RuntimeError as error:
        refuse_types("hedgehog_attention", error)
        raise
    if initial_state is None:
        batch, seq = q.shape[:2]
        length = torch.full((batch,), seq, device=q.device)
        k_cache, v_cache = (_last(t).roll(seq, 1) for t in (k, v))
    else:
        length = length + q.shape[1]
        places = _places(-length)
        k_cache, v_cache = (_take(t[:, -_WINDOW:], places) for t in (keys, values))
    return y, HedgehogState(kv_state, k_state, k_cache, v_cache, length)


def _fields(argument: str, expected: str, state: HedgehogState) -> HedgehogState:
    """The state's tensors, of a plain tuple too; raises if it is something else."""
    if not isinstance(state, tuple) or not all(isinstance(t, Tensor) for t in state):
        raise TypeError(f"{argument} must be {expected}, got {type(state).__name__}")
    return HedgehogState(*state)


def _last(t: Tensor) -> Tensor:
    """The last 64 tokens, with zeros in front where there are fewer."""
    missing = _WINDOW - t.shape[1]
    if missing <= 0:
        return t[:, -_WINDOW:]
    return torch.cat([t.new_zeros(t.shape[0], missing, *t.shape[2:]), t], 1)


def _places(length: Tensor) -> Tensor:
    """Of each of the last 64 tokens, oldest first, its place in the cache: [B, 64]."""
    return (length.unsqueeze(1) + torch.arange(_WINDOW, device=length.device)) % _WINDOW


def _take(t: Tensor, places: Tensor) -> Tensor:
    """Of each sequence those rows, in that order."""
    return t.gather(1, places[:, :, None, None].expand(-1, -1, *t.shape[2:]))


def hedgehog_attention_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_map: Tensor,
    k_map: Tensor,
    *,
    alpha: Tensor,
    beta: Tensor,
    state: HedgehogState,
    **_foreign: NoReturn,
) -> Tensor:
    """One token of hedgehog attention, for decoding: the state is updated in place.

    The window is exactly that of the last 64 tokens, the new one among them; the one that leaves it
    enters the sums of the state. Otherwise it is `hedgehog_attention`, whose windows begin at
    multiples of 64 tokens: results differ by what lies between 64 and 128 tokens back.

    Args:
        q: [B, H, D], float32, float16, bfloat16 or float64, of the new token.
        k: [B, H, D], q's dtype.
        v: [B, H, E], q's dtype.
        q_map: [H, D, F], q's dtype.
        k_map: The same.
        alpha: Weight of what is linear, [H], float32 (float64 for float64).
        beta: Weight of the window, the same.
        state: As `hedgehog_attention` returns it, of an empty sequence for a beginning; its caches
            have q's dtype. All its tensors are written.

    Returns:
        y, [B, H, E], q's dtype, contiguous. Not differentiable.

    Raises:
        ValueError: A shape or a device is not as above.
        TypeError: A dtype or an argument's Python type is not as above.
        NotImplementedError: A tensor is sparse or nested, or needs a gradient.

    Backends:
        The kernels (any architecture) take float32, bfloat16 and float16, D and E up to 256, F up
        to 128, and states that are contiguous; torch computes the rest. Where D and E are at most
        128, F 64, and rows start at multiples of 16 bytes, it is the faster one of two. Nothing is
        read back to the host, and a CUDA graph of a call can be replayed for token after token.

    Numerics:
        All is computed in float32 (float64 for float64), and rounded once.

    Source:
        csrc/kernels/hedgehog_attention. Zhang et al., LoLCATs (2024), section 3.

    Example:
        >>> import torch, thunderkittens
        >>> q, k, v = torch.randn(3, 2, 100, 4, 16).unbind()
        >>> maps = torch.randn(2, 4, 16, 8).unbind()
        >>> weights = {"alpha": torch.full((4,), 0.5), "beta": torch.full((4,), 0.5)}
        >>> _, state = thunderkittens.hedgehog_attention(
        ...     q, k, v, *maps, **weights, output_final_state=True
        ... )
        >>> token = torch.randn(3, 2, 4, 16).unbind()
        >>> y = thunderkittens.hedgehog_attention_step(*token, *maps, **weights, state=state)
        >>> y.shape, state.length
        (torch.Size([2, 4, 16]), tensor([101, 101]))
    """
    if _foreign:
        refuse_keywords("hedgehog_attention_step", _foreign)
    kv_state, k_state, k_cache, v_cache, length = _fields(
        "hedgehog_attention_step: state", "a HedgehogState", state
    )
    written = (k_cache, v_cache, kv_state, k_state, length)
    try:
        if writes_views(*written):
            y, *updated = _functional_step(*written, q, k, v, q_map, k_map, alpha, beta)
            for tensor, new in zip(written, updated, strict=True):
                tensor.copy_(new)
            return y
        return _hedgehog_attention_step(*written, q, k, v, q_map, k_map, alpha, beta)
    except RuntimeError as error:
        refuse_types("hedgehog_attention_step", error)
        raise
