"""Our attention as an implementation of torch's FlashAttention backend."""

import math
import threading
from collections.abc import Callable

import torch
from torch import Tensor

from thunderkittens._C import explain
from thunderkittens.ops._fallback import computed_by_torch

_attention_forward = torch.ops.thunderkittens.attention_forward.default
_attention_backward = torch.ops.thunderkittens.attention_backward.default

_NAME = "thunderkittens"


def register_flash_attention() -> None:
    """Makes "thunderkittens" one of the implementations of torch's FlashAttention backend.

    Registering changes nothing. `torch.nn.attention.activate_flash_attention_impl` then puts our
    forward and backward in the place of torch's on GPUs, in `F.scaled_dot_product_attention`,
    `torch.nn.attention.varlen` and compiled code; `restore_flash_attention_impl` gives them back.

    Raises:
        RuntimeError: The torch at hand has no such registry.

    Backends:
        Torch asks the FlashAttention backend where it chooses it; on Hopper it prefers cuDNN, so
        that `torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION)` is needed around the
        calls. What our kernel does not take (dropout, alibi slopes, lengths in seqused_k, a debug
        mask; and whatever `attention` leaves to torch) goes to torch's own kernel, with one
        warning per reason, or an error under THUNDERKITTENS_STRICT=1. On activation torch itself
        warns that a kernel is overridden: that is meant.

    Numerics:
        As `attention`. Torch's conventions hold: masks are aligned to the bottom right, which
        `F.scaled_dot_product_attention` asks for only where it is the top left too, and the
        log-sum-exp of a row with no key is +inf.

    Example:
        >>> import torch, thunderkittens
        >>> thunderkittens.register_flash_attention()
        >>> "thunderkittens" in torch.nn.attention.list_flash_attention_impls()
        True
    """
    register = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if register is None:
        raise RuntimeError(
            "register_flash_attention: torch must have torch.nn.attention."
            f"register_flash_attention_impl, as 2.11 has, got {torch.__version__}"
        )
    register(_NAME, register_fn=_Activated)


class _Activated:
    """Our functions in the place of torch's two CUDA kernels, until removed.

    `_scaled_dot_product_flash_attention` and its backward, dense or nested, call these two.
    """

    def __init__(self) -> None:
        library = torch.library.Library("aten", "IMPL", "CUDA")
        _override(library, "_flash_attention_forward", _forward)
        _override(library, "_flash_attention_backward", _backward)
        self._library: torch.library.Library | None = library

    def remove(self) -> None:
        self._library = None  # with it go the overrides


def _override(
    library: torch.library.Library, name: str, ours: Callable[..., tuple[Tensor, ...] | None]
) -> None:
    original = torch.library.get_kernel(f"aten::{name}", "CUDA")

    def call(keys: torch.DispatchKeySet, *args: object, **kwargs: object) -> object:
        outputs = ours(keys, *args, **kwargs)
        return original.call_boxed(keys, *args, **kwargs) if outputs is None else outputs

    library.impl(name, call, with_keyset=True)


def _forward(
    keys: torch.DispatchKeySet,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor] | None:
    """aten::_flash_attention_forward; None where it is left to torch's kernel.

    query [B, Sq, Hq, D], with cum_seq_q [Tq, Hq, D]; key and value alike. Redispatched with torch's
    `keys`, the call stays below autograd and autocast.
    """
    unsupported = {
        "dropout": dropout_p != 0.0,
        "a debug mask": return_debug_mask,
        "seqused_k": seqused_k is not None,
        "alibi slopes": alibi_slopes is not None,
    }
    window = (window_size_left, window_size_right)
    options = _options(is_causal, scale, window, cum_seq_q, cum_seq_k, max_q, max_k)
    if not _is_ours(keys, query, key, value, options, unsupported):
        return None
    o, lse = _attention_forward.redispatch(keys, query, key, value, **options)
    if _may_have_blind_rows(query, key, cum_seq_q):
        lse = lse.masked_fill(lse == -math.inf, math.inf)
    # Of the random numbers of dropout, which there is not. Torch's kernel returns what the memory
    # happens to hold; what is saved, and may be compared, is the same in each run here.
    state = query.new_zeros(2, dtype=torch.uint64)
    return _laid_out_like(o, query), lse, state, state.new_zeros(()), query.new_empty(0)


_within = threading.local()  # `active` where attention_backward itself asks torch's kernel


def _backward(
    keys: torch.DispatchKeySet,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor | None,
    unused: Tensor | None,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """aten::_flash_attention_backward; None where it is left to torch's kernel."""
    if getattr(_within, "active", False):
        return None
    window = (window_size_left, window_size_right)
    options = _options(is_causal, scale, window, cum_seq_q, cum_seq_k, max_q, max_k)
    if not _is_ours(keys, query, key, value, options, {"dropout": dropout_p != 0.0}):
        return None
    if _may_have_blind_rows(query, key, cum_seq_q):
        logsumexp = logsumexp.masked_fill(logsumexp == math.inf, -math.inf)
    needs = [True, True, True, False]  # dq, dk, dv, not those of sinks
    _within.active = True
    try:
        dq, dk, dv, _ = _attention_backward.redispatch(
            keys, grad_out, None, query, key, value, out, logsumexp, needs=needs, **options
        )
    finally:
        _within.active = False
    return _laid_out_like(dq, query), _laid_out_like(dk, key), _laid_out_like(dv, value)


def _options(
    is_causal: bool,
    scale: float | None,
    window: tuple[int | None, int | None],
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
) -> dict[str, object]:
    """Our names of torch's options; there −1 too is no limit of a window."""
    left, right = (None if side is None or side < 0 else side for side in window)
    options: dict[str, object] = {
        "causal": is_causal,
        "scale": scale,
        "window_left": left,
        "window_right": right,
    }
    if cum_seq_q is None:
        return options
    packed = {"cu_seqlens_q": cum_seq_q, "cu_seqlens_k": cum_seq_k}
    return options | packed | {"max_seqlen_q": max_q, "max_seqlen_k": max_k}


def _is_ours(
    keys: torch.DispatchKeySet,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: dict[str, object],
    unsupported: dict[str, bool],
) -> bool:
    """Whether a kernel of ours takes the call; if not, says why."""
    reason = next((name for name, given in unsupported.items() if given), None)
    if reason is None:
        found = explain(lambda: _attention_forward.redispatch(keys, query, key, value, **options))
        if found is None:  # no data
            return False
        _, backend, why, _ = found
        if backend != "torch":
            return True
        reason = why
    computed_by_torch("flash_attention", reason, query.is_cuda)
    return False


def _may_have_blind_rows(query: Tensor, key: Tensor, cum_seq_q: Tensor | None) -> bool:
    """Whether a row may see no key: torch's log-sum-exp is then +inf, ours −inf."""
    return cum_seq_q is not None or query.shape[1] > key.shape[1]


def _laid_out_like(t: Tensor, like: Tensor) -> Tensor:
    """t, which is contiguous, with the strides that torch promises to compiled code."""
    return t if like.is_contiguous() else torch.empty_like(like).copy_(t)
