"""Torch's scaled_dot_product_attention on our attention."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

from thunderkittens.ops._fallback import computed_by_torch
from thunderkittens.ops._mistakes import refuse_types

_attention: Callable[..., Tensor] = torch.ops.thunderkittens.attention.default
_by_torch: Callable[..., Tensor] = (
    torch.nn.functional.scaled_dot_product_attention
)  # whatever takes its place there

_DEVICES = ("cpu", "cuda", "meta")
_CAST_DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # by autocast
_DTYPES = (*_CAST_DTYPES, torch.float64)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """A drop-in for `torch.nn.functional.scaled_dot_product_attention`, on `attention`.

    o = softmax(scale · query keyᵀ) value; with `is_causal` row i sees the keys 0 to i, aligned to
    the top left, where `attention(causal=True)` aligns to the bottom right.

    Assigned to `torch.nn.functional.scaled_dot_product_attention`, it serves the models that call
    torch's by that name.

    Args:
        query: [..., Hq, Sq, D], two dimensions or more, float32, float16, bfloat16 or float64, any
            strides; leading dimensions that are not one in memory are copied.
        key: [..., Hk, Sk, D], query's dtype and leading dimensions.
        value: [..., Hk, Sk, Dv], query's dtype and leading dimensions.
        attn_mask: Left to torch.
        dropout_p: Left to torch, unless 0.
        is_causal: Row i sees no key after the i-th.
        scale: Of the products; None for 1 / sqrt(D).
        enable_gqa: Hq may be a multiple of Hk: query head h reads key head h // (Hq / Hk). Without
            it they are equal.

    Returns:
        o, [..., Hq, Sq, Dv], query's dtype: a transposed view of a contiguous [..., Sq, Hq, Dv],
        whose `transpose(-3, -2).flatten(-2)` copies nothing.

    Raises:
        ValueError: scale is not finite.
        TypeError: scale is no number.
        Exception: Torch's own where torch refuses the call.

    Backends:
        A call with attn_mask or dropout, of broadcast shapes, or of nested or sparse tensors is
        torch's own. On a GPU that warns once per reason, and is an error under
        THUNDERKITTENS_STRICT=1. All others are calls of `attention`, without copies, where
        kernel, dtypes and reasons to fall back are as there: is_causal is its `causal` where
        Sq = Sk; where Sq < Sk too, of the first Sq keys; where Sq > Sk it is
        `window=(None, Sq - Sk)`.

    Numerics:
        As `attention`: float32 inside (float64 for float64), autocast included.

    Source:
        csrc/kernels/attention.

    Example:
        >>> import torch, thunderkittens
        >>> q, k = torch.randn(2, 8, 3, 64), torch.randn(2, 2, 5, 64)
        >>> thunderkittens.scaled_dot_product_attention(q, k, k, enable_gqa=True).shape
        torch.Size([2, 8, 3, 64])
    """
    reason = why_torch(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    if reason is not None:
        options: dict[str, object] = {"attn_mask": attn_mask, "dropout_p": dropout_p}
        options |= {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        public = torch.nn.functional.scaled_dot_product_attention
        # A CausalBias knows torch's function by that name only.
        if public is not _by_torch and _is_causal_bias(attn_mask):
            given: Tensor = handle_torch_function(
                public, (attn_mask,), query, key, value, **options
            )
            return given
        o = _by_torch(query, key, value, **options)
        computed_by_torch("scaled_dot_product_attention", reason, query.is_cuda)
        return o

    o = by_attention(query, key, value, is_causal, scale).transpose(1, 2)
    return o if query.dim() == 4 else o.view(*query.shape[:-1], value.shape[-1])


def by_attention(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None
) -> Tensor:
    """What `attention` gives for a call that is ours, [B, Sq, Hq, Dv]."""
    rows, keys = query.shape[-2], key.shape[-2]
    if is_causal and rows < keys:  # no row sees the others
        key, value = key[..., :rows, :], value[..., :rows, :]
    right = rows - keys if is_causal and rows > keys else None
    q, k, v = _rows_first(query), _rows_first(key), _rows_first(value)
    try:
        return _attention(q, k, v, is_causal and right is None, scale, window_right=right)
    except RuntimeError as error:
        refuse_types("scaled_dot_product_attention", error)
        raise


def why_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    enable_gqa: bool,
) -> str | None:
    """Why the call is torch's, which may refuse it; None when it is ours."""
    if attn_mask is not None:
        return "an attn_mask"
    if dropout_p != 0.0:
        return "dropout"
    if not (_is_dense(query) and _is_dense(key) and _is_dense(value)):
        return "a tensor is nested or sparse"
    device, dtype = query.device, query.dtype
    if device.type not in _DEVICES or key.device != device or value.device != device:
        return f"tensors on {device.type}"
    alike = dtype in _DTYPES and key.dtype == dtype and value.dtype == dtype
    if not alike and not _autocast_casts(query, key, value):
        return f"query of {dtype}, key of {key.dtype}, value of {value.dtype}"
    if not isinstance(is_causal, bool):
        return f"is_causal is {is_causal!r}"
    return None if _fit(query.shape, key.shape, value.shape, enable_gqa) else "broadcast shapes"


def _is_causal_bias(mask: Tensor | None) -> bool:
    if mask is None or type(mask) is Tensor:
        return False
    from torch.nn.attention.bias import CausalBias  # imports the compiler: a second

    return isinstance(mask, CausalBias)


def _is_dense(t: Tensor) -> bool:
    return isinstance(t, Tensor) and t.layout is torch.strided and not t.is_nested


def _autocast_casts(*tensors: Tensor) -> bool:
    """Whether the dtypes differ only until autocast has made them one."""
    dtypes = {t.dtype for t in tensors}
    return dtypes.issubset(_CAST_DTYPES) and torch.is_autocast_enabled(tensors[0].device.type)


def _fit(query: torch.Size, key: torch.Size, value: torch.Size, enable_gqa: bool) -> bool:
    """Whether nothing is broadcast but, with `enable_gqa`, the heads of key and value."""
    if not len(query) == len(key) == len(value) >= (3 if enable_gqa else 2):
        return False
    if key[:-1] != value[:-1] or query[-1] != key[-1]:
        return False
    if not enable_gqa:
        return query[:-2] == key[:-2]
    group = max(1, key[-3])  # attention refuses to divide by 0 heads, torch does it
    return query[:-3] == key[:-3] and query[-3] % group == 0


def _rows_first(t: Tensor) -> Tensor:
    """[..., H, S, D] as [B, S, H, D]."""
    if t.dim() != 4:
        t = t[(None,) * (4 - t.dim())].flatten(0, -4)
    return t.transpose(1, 2)
