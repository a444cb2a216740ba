"""What transformers calls for attention under the name "thunderkittens"."""

import math
from typing import Any

import torch
from torch import Tensor

from thunderkittens.integrations.transformers._bands import Band
from thunderkittens.integrations.transformers._masks import PACKED, UNKNOWN, Mask
from thunderkittens.ops._fallback import computed_by_torch
from thunderkittens.ops.attention import attention
from thunderkittens.ops.attention_decode import attention_decode

_DECODE_ROWS = 16  # what attention_decode's kernel takes; and head dimensions, multiples of 8
_DECODE_WIDTH = 256


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Mask | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    cache: object | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    max_length_q: int | None = None,
    max_length_k: int | None = None,
    output_attentions: bool | None = None,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    """query [B, Hq, Sq, D], key and value [B, Hk, Sk, D]; gives o, [B, Sq, Hq, Dv], and weights.

    The weights, [B, Hq, Sq, Sk], are there with `output_attentions` alone.
    """
    if cache is not None:
        raise NotImplementedError(
            "thunderkittens attention: transformers' continuous batching keeps pages of its own, "
            'which it does not take; load the model with attn_implementation="sdpa"'
        )
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    rows = query.shape[2]
    causal = is_causal and rows > 1
    if attention_mask is None and causal and key.shape[2] > rows:
        key, value = key[:, :, :rows], value[:, :, :rows]  # what transformers' sdpa takes it for
    _check(query, key, attention_mask)
    packed = cu_seq_lens_q is not None
    reason = _why_torch(attention_mask, dropout, position_bias, output_attentions, packed)
    if reason is not None:
        computed_by_torch("thunderkittens attention", reason, query.is_cuda)
        mask = _dense(attention_mask, rows, key.shape[2], causal, query.device)
        return _by_torch(
            query, key, value, mask, dropout, scaling, softcap, s_aux, position_bias,
            bool(output_attentions),
        )  # fmt: skip
    options: dict[str, Any] = {"scale": scaling, "softcap": softcap or 0.0, "sinks": s_aux}
    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    mask_is_known = isinstance(attention_mask, Mask) and attention_mask.band is not None
    if packed:
        left = sliding_window - 1 if sliding_window is not None else math.inf
        band = Band(-left, 0 if is_causal else left)
        if mask_is_known:
            band = attention_mask.band  # type: ignore[union-attr, assignment]
        longest = (max_length_q or rows, max_length_k or key.shape[2])
        bounds = (cu_seq_lens_q, cu_seq_lens_k, *longest)
        return _packed(q, k, v, bounds, options | _window(band)), None
    if attention_mask is None:
        return attention(q, k, v, causal=causal, **options), None
    return _described(q, k, v, attention_mask, options), None  # type: ignore[arg-type]


def _described(q: Tensor, k: Tensor, v: Tensor, mask: Mask, options: dict[str, Any]) -> Tensor:
    """Attention [B, S, H, D] with a mask that the kernels can take."""
    band = mask.band or Band()
    options = options | _window(band)
    o: Tensor
    if mask.sequences is not None:
        o = _packed(q, k, v, mask.bounds(), options)
    elif mask.run is not None:
        ranges = mask.key_ranges(q.device)
        if ranges is None:
            return _packed(q, k, v, mask.bounds(), options)
        first, end = (bound.to(q.device) for bound in ranges)
        o = attention(q, k, v, leftpad_k=first, seqused_k=end, **options)
    elif band.high != 0:  # no cache has room for more
        o = attention(q, k, v, **options)
    elif _decodes(q, k, v):
        del options["causal"]
        o = attention_decode(q, k, v, seqlens=mask.seqlens(q.device).to(q.device), **options)
    elif isinstance(mask.origin, Tensor):
        o = attention(q, k, v, seqused_k=mask.seqlens(q.device).to(q.device), **options)
    else:
        count = mask.origin + q.shape[1]
        o = attention(q, k[:, :count], v[:, :count], **options)
    return o


def _packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bounds: tuple[Tensor | None, Tensor | None, int, int],
    options: dict[str, Any],
) -> Tensor:
    """Attention of [B, S, H, D] as one row of sequences that begin where `bounds` says."""
    cu_q, cu_k, longest_q, longest_k = bounds
    o: Tensor = attention(
        q.flatten(0, 1),
        k.flatten(0, 1),
        v.flatten(0, 1),
        cu_seqlens_q=cu_q if cu_q is None else cu_q.to(q.device),
        cu_seqlens_k=cu_k if cu_k is None else cu_k.to(q.device),
        max_seqlen_q=longest_q,
        max_seqlen_k=longest_k,
        **options,
    )
    return o.view(*q.shape[:2], *o.shape[1:])


def _window(band: Band) -> dict[str, Any]:
    """`causal` and `window` of a band."""
    left, right = (None if math.isinf(side) else int(side) for side in (-band.low, band.high))
    return {"causal": right == 0, "window": None if left is None and not right else (left, right)}


def _decodes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether a few new tokens meet a cache that attention_decode's kernel takes."""
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return False
    width = q.shape[-1]
    few = q.shape[1] <= _DECODE_ROWS and q.shape[1] < k.shape[1]
    fits = width % 8 == 0 and width <= _DECODE_WIDTH
    return few and fits and v.shape[-1] == width


def _check(query: Tensor, key: Tensor, mask: Mask | Tensor | None) -> None:
    if not isinstance(mask, Mask):
        return
    batch, rows, keys = mask.sizes
    got = (query.shape[0], query.shape[2], key.shape[2])
    if got != (batch, rows, keys):
        raise ValueError(
            f"thunderkittens attention: the mask is of {batch} × {rows} rows and {keys} keys, got "
            f"query and key of {got[0]} × {got[1]} rows and {got[2]} keys"
        )


def _why_torch(
    mask: Mask | Tensor | None,
    dropout: float,
    position_bias: Tensor | None,
    output_attentions: bool | None,
    packed: bool,
) -> str | None:
    """Why torch computes the call; None where our ops do."""
    if output_attentions:
        return "output_attentions"
    if dropout:
        return "dropout"
    if position_bias is not None:
        return "a position_bias"
    if isinstance(mask, Tensor):
        return "a mask tensor"
    if packed:
        if isinstance(mask, Mask) and (mask.run is not None or mask.reason not in (None, PACKED)):
            raise ValueError(
                "thunderkittens attention: cu_seq_lens_q must come without an attention_mask that "
                f"pads and without {UNKNOWN}, got both"
            )
        return None
    return mask.reason if isinstance(mask, Mask) else None


def _dense(
    mask: Mask | Tensor | None, rows: int, keys: int, causal: bool, device: torch.device
) -> Tensor | None:
    """The true mask, bool or additive."""
    if isinstance(mask, Mask):
        return mask.dense()
    if mask is None and causal:
        return torch.ones(rows, keys, dtype=torch.bool, device=device).tril(keys - rows)
    return mask


def _by_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scaling: float | None,
    softcap: float | None,
    sinks: Tensor | None,
    position_bias: Tensor | None,
    weights_too: bool,
) -> tuple[Tensor, Tensor | None]:
    """Torch's own attention; step by step where that has no such option."""
    if position_bias is not None:
        lowest = torch.finfo(query.dtype).min
        if mask is None:
            mask = position_bias
        elif mask.dtype == torch.bool:
            mask = torch.where(mask, position_bias, lowest)
        else:
            mask = mask + position_bias
    if mask is not None and mask.device != query.device:
        mask = mask.to(query.device)
    group = query.shape[1] // key.shape[1]
    if softcap is None and sinks is None and not weights_too:
        o = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, dropout, scale=scaling, enable_gqa=group > 1
        )
        return o.transpose(1, 2).contiguous(), None
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = (query @ key.transpose(2, 3)).float() * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    if sinks is not None:
        sink = sinks.float()[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, sink), dim=-1)
    weights = scores.softmax(-1)[..., : key.shape[2]].to(value.dtype)
    weights = torch.nn.functional.dropout(weights, dropout)
    return (weights @ value).transpose(1, 2).contiguous(), weights if weights_too else None
