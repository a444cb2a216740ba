"""Attention over a sequence that is longer than what one GPU holds."""

from collections.abc import Callable
from typing import Any, Literal, overload

import torch
import torch.distributed as dist
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable would import dynamo now

from thunderkittens.distributed._ring import Ring
from thunderkittens.distributed._ring_steps import Options, RingAttention
from thunderkittens.ops.attention import attention


@overload
def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: "dist.ProcessGroup | None" = ...,
    causal: bool = ...,
    scale: float | None = ...,
    softcap: float = ...,
    sinks: Tensor | None = ...,
    cu_seqlens: Tensor | None = ...,
    max_seqlen: int | None = ...,
    return_lse: Literal[False] = ...,
) -> Tensor: ...
@overload
def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: "dist.ProcessGroup | None" = ...,
    causal: bool = ...,
    scale: float | None = ...,
    softcap: float = ...,
    sinks: Tensor | None = ...,
    cu_seqlens: Tensor | None = ...,
    max_seqlen: int | None = ...,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@overload
def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: "dist.ProcessGroup | None" = ...,
    causal: bool = ...,
    scale: float | None = ...,
    softcap: float = ...,
    sinks: Tensor | None = ...,
    cu_seqlens: Tensor | None = ...,
    max_seqlen: int | None = ...,
    return_lse: bool,
) -> Tensor | tuple[Tensor, Tensor]: ...
@_disable_dynamo
def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: "dist.ProcessGroup | None" = None,
    causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """`thunderkittens.attention` over a sequence that W ranks share: context parallelism.

    Keys and values travel around the ring of ranks. In each of W steps a rank attends to those it
    has, while it receives the next ones from the rank before and sends its own on. A step's o and
    log-sum-exp join those of the steps before:

    lse' = log(exp(lse) + exp(lse_step));  o' = o + exp(lse_step − lse') · (o_step − o).

    The backward goes around once more, with p = exp(s − lse) of the lse of all keys; gradients of k
    and v travel with them, and arrive home behind the last step.

    Each rank gives its shares of q, k and v, as `shard_sequence` makes them: contiguous ones, or,
    with `causal`, chunks r and 2W − 1 − r of 2W. Of such a zigzag's W steps the first is causal;
    each other one leaves out half of the keys, or half of the rows, whole: the same work on every
    rank, none of it masked. Positions, as of rotary, are those of `shard_sequence` too.

    Args:
        q: [B, S / W, Hq, D], as of `thunderkittens.attention`. Packed: [T / W, Hq, D].
        k: [B, Sk / W, Hk, D]. Packed: [T / W, Hk, D]. S and Sk may differ without `causal`.
        v: [B, Sk / W, Hk, Dv]. Packed: [T / W, Hk, Dv].
        group: The ranks; None for all. Each calls this alike, with the same shapes and options.
        causal: Position i sees no key of a later position. The shares are zigzags then.
        scale: Of the products; None for 1 / sqrt(D).
        softcap: ≥ 0; 0 for none.
        sinks: [Hq], the same on all ranks: one more logit per row. Its gradient is that of this
            rank's rows, to be summed over ranks as that of any replicated parameter.
        cu_seqlens: [sequences + 1], int32 or int64, on q's device: q, k and v are packed, and these
            are of this rank's shares, those of the whole divided by W. Never read back; with
            `causal` all are even.
        max_seqlen: At least the longest of this rank's shares; required with cu_seqlens.
        return_lse: Also return the log-sum-exp of each row, over all keys.

    Returns:
        o, [B, S / W, Hq, Dv] (packed [T / W, Hq, Dv]), q's dtype: this rank's rows, in q's order;
        with `return_lse` (o, lse), lse [B, Hq, S / W] (packed [Hq, T / W]), float32 (float64 for
        float64). Both are differentiable, once.

    Raises:
        ValueError: A shape, a device or a number is not as above. Raised before anything is sent;
            ranks that find no mistake of theirs wait for the one that did, until the group's
            timeout. That ranks agree is not checked.
        TypeError: A dtype is not as above, or an argument is a DTensor and not a rank's share.

    Numerics:
        Steps are `thunderkittens.attention`, by whichever backend serves it: their o and gradients
        are rounded to q's dtype, then added up in float32 (float64), and rounded once more. The
        order is that of the ring, from the rank's own keys backwards: same bits on every run, but
        not those of another number of ranks.

    Communication:
        Point to point: W − 1 times k and v forward; backward the same, and W times the gradients of
        k and v in float32. torch.compile breaks its graph here.

    Source:
        Liu, Zaharia, Abbeel: Ring Attention with Blockwise Transformers for Near-Infinite Context,
        2023; the zigzag is that of Llama 3's context parallelism (2024, section 3.3.2).

    Example:
        >>> import torch, torch.distributed as dist, thunderkittens
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> q, k = torch.randn(1, 8, 4, 16), torch.randn(1, 8, 2, 16)
        >>> q, k = (thunderkittens.distributed.shard_sequence(x) for x in (q, k))
        >>> thunderkittens.distributed.ring_attention(q, k, k, causal=True).shape
        torch.Size([1, 8, 4, 16])
        >>> dist.destroy_process_group()
    """
    if torch.is_autocast_enabled(q.device.type):
        q, k, v = (_autocast(t) for t in (q, k, v))
    with torch.autocast(q.device.type, enabled=False):
        options = Options(causal, scale, softcap, cu_seqlens, max_seqlen)
        _check(q, k, v, sinks, options)
        if dist.get_world_size(group) == 1:
            return attention(
                *(q, k, v), sinks=sinks, causal=causal, return_lse=return_lse, **options.shared()
            )
        apply: Callable[..., tuple[Tensor, Tensor]] = RingAttention.apply
        o, lse = apply(q, k, v, sinks, Ring(group), options)
    return (o, lse) if return_lse else o


def _autocast(t: Tensor) -> Tensor:
    return t if t.dtype == torch.float64 else t.to(torch.get_autocast_dtype(t.device.type))


def _check(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, options: Options) -> None:
    """Raises what attention would, and what the ring adds."""
    given = {"q": q, "k": k, "v": v, "sinks": sinks, "cu_seqlens": options.cu_seqlens}
    for name, t in given.items():
        if hasattr(t, "device_mesh"):
            raise TypeError(f"ring_attention: {name} must be this rank's share, got a DTensor")
        if t is not None and t.device != q.device:
            raise ValueError(
                f"ring_attention: {name} must be on {q.device}, as q is, got {t.device}"
            )
    try:
        there: dict[str, Any] = {
            name: None if t is None else t.detach().to("meta") for name, t in given.items()
        }
        on_meta = options._replace(cu_seqlens=there.pop("cu_seqlens"))
        attention(**there, causal=options.causal, **on_meta.shared())
    except (ValueError, TypeError) as error:
        raise type(error)(f"ring_{error}") from None
    rows, keys = q.size(-3), k.size(-3)
    if options.causal and (rows != keys or rows % 2):
        raise ValueError(
            "ring_attention: of a causal call, q and k must have the same even number of rows, two "
            f"chunks of a zigzag, got {rows} and {keys}"
        )
