"""The forwards that take the place of transformers' own.

Each gives the original's dtype, shape and strides, and leaves to it what it does not know.
Names of arguments are the originals', for callers pass them by keyword.
"""

import functools
import types
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from thunderkittens.integrations.transformers._swap import recipe
from thunderkittens.ops.activation import geglu, gelu, swiglu
from thunderkittens.ops.mlp import mlp
from thunderkittens.ops.norm import layer_norm, rms_norm
from thunderkittens.ops.rotary import rotary

ROTARY = "apply_rotary_pos_emb"  # the function that transformers' attention calls by this name


@recipe
def llama_rms_norm(original: type[nn.Module]) -> dict[str, object]:
    """weight · (x · rstd), the product in brackets rounded to x's dtype."""

    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        return llama_norm(hidden_states, self.weight, self.variance_epsilon)

    return {"forward": forward}


@recipe
def gemma_rms_norm(original: type[nn.Module]) -> dict[str, object]:
    """(1 + weight) · (x · rstd), rounded once."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return gemma_norm(x, self.weight, self.eps)

    return {"forward": forward}


@recipe
def torch_layer_norm(original: type[nn.Module]) -> dict[str, object]:
    """torch.nn.LayerNorm over the last dimension."""

    def forward(self: Any, input: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if input.is_cuda and torch.is_autocast_enabled("cuda"):  # torch's own runs in float32 there
            input = input.float()
            weight, bias = (t if t is None else t.float() for t in (weight, bias))
        return layer_norm(input, weight, bias, self.eps)

    return {"forward": forward}


@recipe
def gated_mlp(original: type[nn.Module], activation: str) -> dict[str, object]:
    """down_proj(f(gate_proj(x)) · up_proj(x)); the projections are called, whatever they are."""
    product = _PRODUCTS[activation]

    def forward(self: Any, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        y = product(gate, up) if gate.dtype == up.dtype else self.act_fn(gate) * up
        down: Tensor = self.down_proj(y)
        return down

    return {"forward": forward}


@recipe
def fused_gated_mlp(original: type[nn.Module], activation: str) -> dict[str, object]:
    """The same with one projection for gate and up, as in Phi-3."""
    product = _PRODUCTS[activation]

    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(hidden_states).chunk(2, dim=-1)
        down: Tensor = self.down_proj(product(gate, up))
        return down

    return {"forward": forward}


@recipe
def plain_mlp(original: type[nn.Module], activation: Literal["none", "tanh"]) -> dict[str, object]:
    """GPT-2's: c_proj(gelu(c_fc(x))), then dropout.

    In one call where the projections are what GPT-2 has; others, as LoRA's, are called.
    """

    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        if is_plain(self.c_fc) and is_plain(self.c_proj):
            layers = (t for p in (self.c_fc, self.c_proj) for t in (p.weight.t(), p.bias))
            y = mlp(hidden_states, *layers, approximate=activation)
        else:
            y = self.c_proj(gelu(self.c_fc(hidden_states), approximate=activation))
        dropped: Tensor = self.dropout(y)
        return dropped

    return {"forward": forward}


def is_plain(projection: nn.Module) -> bool:
    """Whether a call of it is nothing but x · weight + bias, of transformers' Conv1D."""
    kind = type(projection)
    return (
        f"{kind.__module__}.{kind.__qualname__}" == "transformers.pytorch_utils.Conv1D"
        and type(projection.weight) is nn.Parameter  # else a DTensor's, or one that is quantised
        and not (projection._forward_hooks or projection._forward_pre_hooks)
        and not (projection._backward_hooks or projection._backward_pre_hooks)
        and "forward" not in vars(projection)
    )


@recipe
def rotary_attention(original: type[nn.Module]) -> dict[str, object]:
    """The original's forward, in which the name of the rotary function stands for ours.

    It is the same code with globals of its own. `__name__` is no part of these: by it torch.compile
    would take them for those of transformers' module.
    """
    forward = original.forward
    names = {name: value for name, value in forward.__globals__.items() if name != "__name__"}
    names[ROTARY] = turned_by(forward.__globals__[ROTARY])
    made = types.FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    made.__kwdefaults__ = forward.__kwdefaults__
    made.__module__ = forward.__module__
    made.__qualname__, made.__doc__ = forward.__qualname__, forward.__doc__
    made.__annotations__ = forward.__annotations__
    return {"forward": made}


def llama_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """rms_norm with Llama's casting, and its dtype where weight has another than x."""
    if x.dtype != weight.dtype:
        common = torch.promote_types(x.dtype, weight.dtype)
        x, weight = x.to(common), weight.to(common)
    return _in_memory_order(
        x, lambda x: rms_norm(x, weight, eps, weight_offset=0.0, casting="llama")
    )


def gemma_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """rms_norm with Gemma's casting, in x's dtype whatever that of weight is."""
    weight = weight if weight.dtype == x.dtype else weight.float()
    return _in_memory_order(
        x, lambda x: rms_norm(x, weight, eps, weight_offset=1.0, casting="gemma")
    )


@functools.cache
def turned_by(
    original: Callable[..., tuple[Tensor, Tensor]],
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Our rotary with the signature of transformers', which takes what ours does not."""

    def apply_rotary_pos_emb(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
    ) -> tuple[Tensor, Tensor]:
        turned = turn(q, k, cos, sin) if unsqueeze_dim == 1 else None
        return original(q, k, cos, sin, unsqueeze_dim) if turned is None else turned

    return apply_rotary_pos_emb


def turn(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor] | None:
    """q [B, Hq, S, D] and k [B, Hk, S, D] turned; None for what is no such call.

    cos and sin are [B or 1, S, R], a row a token: halves of it are the same angles.
    """
    batch, _, length, width = q.shape if q.dim() == 4 else (0, 0, 0, 0)
    rows, pairs = cos.shape[0], cos.shape[-1] // 2  # (a table of another rank is refused below)
    if (
        cos.dim() != 3
        or cos.shape != sin.shape
        or cos.shape[1] != length
        or rows not in (1, batch)
        or cos.shape[-1] % 2
        or cos.shape[-1] > width
        or q.dtype != k.dtype
        or cos.requires_grad
        or sin.requires_grad
    ):
        return None
    if cos.dtype != q.dtype and not torch.is_autocast_enabled(q.device.type):
        common = torch.promote_types(q.dtype, cos.dtype)  # (under autocast, attention rounds it)
        q, k, cos, sin = (t.to(common) for t in (q, k, cos, sin))
    q, k = q.transpose(1, 2), k.transpose(1, 2)  # as they lie in memory: [B, S, H, D]
    cos, sin = (t[..., :pairs].flatten(0, 1) for t in (cos, sin))  # [rows · S, R / 2]
    if rows == 1:
        q, k = rotary(q, k, cos, sin)
    else:  # one long sequence, whose positions are rows of the tables
        turned = rotary(q.flatten(0, 1)[None], k.flatten(0, 1)[None], cos, sin)
        q, k = (t.unflatten(1, (batch, length))[0] for t in turned)
    return q.transpose(1, 2), k.transpose(1, 2)


def _in_memory_order(x: Tensor, norm: Callable[[Tensor], Tensor]) -> Tensor:
    """norm(x), with heads and tokens, [B, H, S, D], laid out as they are in x."""
    if x.dim() == 4 and not x.is_contiguous() and x.transpose(1, 2).is_contiguous():
        return norm(x.transpose(1, 2)).transpose(1, 2)
    return norm(x)


_PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "silu": swiglu,
    "tanh": functools.partial(geglu, approximate="tanh"),
    "none": functools.partial(geglu, approximate="none"),
}
