"""What `torch.utils.flop_counter.FlopCounterMode` has to be told of our ops: FLOPs of products.

It counts 2 for each multiplication and addition of a matrix product, and nothing for what is done
element by element, so norms, activations, rotary and cross entropy count 0, as torch's own do.

Attention counts as torch's formulas of scaled_dot_product_attention do: all Sq · Sk scores of each
head, whatever causal masks, windows, seqused_k and leftpad_k leave out; packed sequences each by
itself; and in the backward the scores once more. So a model's count, and a utilisation that is
computed from it, stay what they were when torch's attention is replaced by ours. Linear attention
counts the products of its chunks of 64 tokens, all of them: scores and weighted values in the
chunk, and those with the state; its backward three times as many. Where torch's own ops compute
ours, as attention that needs a gradient on the CPU, those are counted.
"""

from collections.abc import Callable
from math import prod
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from thunderkittens._when_imported import when_imported


def register_flop_formulas() -> None:
    """Registers our ops' formulas: now, if torch's counter is there, or when it is imported."""
    when_imported("torch.utils.flop_counter", _register, needs="FlopCounterMode")


def _register(counter: ModuleType) -> None:
    ops = torch.ops.thunderkittens

    def register(targets: list[torch._ops.OpOverloadPacket], formula: Callable[..., int]) -> None:
        counter.register_flop_formula(targets, get_raw=True)(formula)

    def scores(q: Tensor, k: Tensor, given: dict[str, Any]) -> int:
        """How many scores all heads have."""
        if given.get("cu_seqlens_q") is None:
            return prod(q.shape[:3]) * k.shape[1]
        rows = _lengths(given["cu_seqlens_q"], given["max_seqlen_q"])
        keys = _lengths(given["cu_seqlens_k"], given["max_seqlen_k"])
        return q.shape[1] * sum(r * c for r, c in zip(rows, keys, strict=True))

    def attention(q: Tensor, k: Tensor, v: Tensor, *_: object, **given: Any) -> int:
        return 2 * scores(q, k, given) * (q.shape[-1] + v.shape[-1])

    def attention_backward(
        _dout: Tensor,
        _dlse: Tensor | None,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *_: object,
        **given: Any,
    ) -> int:  # scores, dq and dk; dp and dv
        return 2 * scores(q, k, given) * (3 * q.shape[-1] + 2 * v.shape[-1])

    def of_one(qkv: Tensor, given: dict[str, Any]) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        """q, k and v, and what says which are seen, as `attention` has it."""
        places = {f"{n}_{t}": given.get(n) for n in ("cu_seqlens", "max_seqlen") for t in "qk"}
        return qkv.unbind(-3), places

    def attention_qkvpacked(qkv: Tensor, *_: object, **given: Any) -> int:
        tensors, places = of_one(qkv, given)
        return attention(*tensors, **places)

    def attention_qkvpacked_backward(
        dout: Tensor, dlse: Tensor | None, qkv: Tensor, *_: object, **given: Any
    ) -> int:
        tensors, places = of_one(qkv, given)
        return attention_backward(dout, dlse, *tensors, **places)

    def linear_attention(q: Tensor, _k: Tensor, v: Tensor, *_: object, **__: object) -> int:
        width, values = q.shape[-1], v.shape[-1]
        return 2 * v.shape[:-1].numel() * (64 * (width + values) + 2 * width * values)

    def linear_attention_backward(
        _dout: Tensor, _dstate: Tensor | None, *args: Any, **_: Any
    ) -> int:
        return 3 * linear_attention(*args)  # dq, dk and dv: each a recurrence

    def product(x: Tensor, weight: Tensor) -> int:
        return 2 * x.shape[:-1].numel() * weight.numel()

    def linear(x: Tensor, weight: Tensor, *_: object, **__: object) -> int:
        return product(x, weight)

    def linear_cross_entropy(x: Tensor, weight: Tensor, *_: object, **__: object) -> int:
        return product(x, weight)

    def linear_cross_entropy_forward(*args: Any, **_: object) -> int:
        needs: list[bool] = args[4]
        return product(args[0], args[1]) * (1 + sum(needs[:2]))

    def linear_cross_entropy_backward(*args: Any, **_: object) -> int:
        needs: list[bool] = args[6]
        return product(args[0], args[3]) * (1 + sum(needs[:2]))  # the logits once more

    register([ops.attention, ops.attention_forward], attention)
    register([ops.attention_backward], attention_backward)
    register(
        [ops.attention_qkvpacked, ops.attention_qkvpacked_forward],
        attention_qkvpacked,
    )
    register([ops.attention_qkvpacked_backward], attention_qkvpacked_backward)
    register([ops.linear_attention, ops.linear_attention_forward], linear_attention)
    register([ops.linear_attention_backward], linear_attention_backward)
    register([ops.linear], linear)
    register([ops.linear_cross_entropy], linear_cross_entropy)
    register([ops.linear_cross_entropy_forward], linear_cross_entropy_forward)
    register([ops.linear_cross_entropy_backward], linear_cross_entropy_backward)


def _lengths(ends: Tensor, longest: int) -> list[int]:
    """Of packed sequences; of a stand-in without data, as of torch.compile, the longest each."""
    if type(ends) is not Tensor or ends.is_meta:
        return [longest] * (ends.shape[0] - 1)
    return ends.diff().tolist()
