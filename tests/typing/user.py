"""A user's script: the types that a checker sees, exactly, and the mistakes that it finds.

`make lint` checks it with mypy --strict, under which an ignored error that is none is an error too;
`test_user.py` runs it.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import assert_type

import thunderkittens as tk

Pair = tuple[Tensor, Tensor]


def attention(q: Tensor, wants_lse: bool) -> None:
    """One tensor or two."""
    assert_type(tk.attention(q, q, q), Tensor)
    assert_type(tk.attention(q, q, q, causal=True, scale=0.5, window=(1, None)), Tensor)
    assert_type(tk.attention(q, q, q, return_lse=False), Tensor)
    assert_type(tk.attention(q, q, q, softcap=30.0, return_lse=True), Pair)
    assert_type(tk.attention(q, q, q, return_lse=wants_lse), Tensor | Pair)
    qkv, sinks = torch.stack([q, q, q], -3), torch.zeros(q.shape[-2])
    assert_type(tk.attention_qkvpacked(qkv), Tensor)
    assert_type(tk.attention_qkvpacked(qkv, causal=True, window=(1, None)), Tensor)
    assert_type(tk.attention_qkvpacked(qkv, sinks=sinks, return_lse=True), Pair)
    assert_type(tk.attention_qkvpacked(qkv, return_lse=wants_lse), Tensor | Pair)
    assert_type(tk.scaled_dot_product_attention(q, q, q, is_causal=True), Tensor)


def of_ranks(q: Tensor, wants_lse: bool) -> None:
    """Of a group of one."""
    store = dist.HashStore()  # type: ignore[attr-defined]  # torch exports it without saying so
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    ring = tk.distributed.ring_attention
    share = tk.distributed.shard_sequence(q, causal=False)
    assert_type(share, Tensor)
    assert_type(tk.distributed.unshard_sequence(share, 1), Tensor)
    assert_type(ring(q, q, q, causal=True, softcap=1.0), Tensor)
    assert_type(ring(q, q, q, group=dist.group.WORLD, return_lse=True), Pair)
    assert_type(ring(q, q, q, return_lse=wants_lse), Tensor | Pair)
    dist.destroy_process_group()


def norms(x: Tensor, residual: Tensor | None) -> None:
    """Functions and modules."""
    assert_type(tk.layer_norm(x, None, None, 1e-5), Tensor)
    assert_type(tk.rms_norm(x, eps=None, casting="gemma"), Tensor)
    assert_type(tk.add_layer_norm(x, residual), Pair)
    assert_type(tk.add_rms_norm(x, None, dropout_p=0.1), Pair)
    assert_type(tk.nn.LayerNorm(8)(x), Tensor)
    assert_type(tk.nn.RMSNorm((8,), eps=1e-6, casting="llama")(x), Tensor)
    assert_type(tk.nn.AddLayerNorm(8)(x, residual), Pair)
    assert_type(tk.nn.AddRMSNorm(8, dropout_p=0.1)(x, x), Pair)
    assert_type(tk.nn.RMSNorm(8).eps, float | None)


def activations(x: Tensor) -> None:
    """Functions and modules."""
    assert_type(tk.gelu(x), Tensor)
    assert_type(tk.geglu(x, x, approximate="tanh"), Tensor)
    assert_type(tk.swiglu(x, x), Tensor)
    assert_type(tk.nn.GELU("none")(x), Tensor)
    assert_type(tk.nn.GEGLU("tanh")(x), Tensor)
    assert_type(tk.nn.SwiGLU()(x), Tensor)
    assert_type(tk.nn.GatedMLP(8, 24, "gelu_tanh")(x), Tensor)
    up, down = torch.ones(24, 8), torch.ones(8, 24)
    assert_type(tk.mlp(x, up, None, down, None, approximate="tanh"), Tensor)
    assert_type(tk.nn.MLP(8, 24, "tanh", out_features=16)(x), Tensor)


def quantized(x: Tensor, layer: torch.nn.Linear) -> None:
    """Functions and the module."""
    made = tk.quantize_weight(layer.weight, torch.float8_e4m3fn)
    assert_type(tk.quantized_linear(x, *made, residual=x), Tensor)
    assert_type(tk.dequantize_weight(*made), Tensor)
    assert_type(tk.nn.QuantizedLinear.from_linear(layer, "int4")(x), Tensor)
    assert_type(tk.nn.QuantizedLinear(8, 8, weight_dtype="int4", group_size=8).zero, Tensor | None)


def rotary(q: Tensor, k: Tensor | None, table: Tensor) -> None:
    """None in, None out."""
    assert_type(tk.rotary(q, q, table, table), Pair)
    assert_type(tk.rotary(q, None, table, table, offsets=1)[1], None)
    assert_type(tk.rotary(q, k, table, table), tuple[Tensor, Tensor | None])
    module = tk.nn.Rotary(8, 5, base=500000.0)
    assert_type(module(q, q), Pair)
    assert_type(module(q, None, inplace=False), tuple[Tensor, None])


def losses(x: Tensor, targets: Tensor) -> None:
    """Functions and modules."""
    assert_type(tk.cross_entropy(x, targets, reduction="sum"), Tensor)
    assert_type(tk.linear_cross_entropy(x, x, targets, bias=None), Tensor)
    assert_type(tk.nn.CrossEntropyLoss(reduction="none")(x, targets), Tensor)
    assert_type(tk.nn.LinearCrossEntropyLoss(z_loss=1e-4)(x, x, targets), Tensor)


def linear_attention(q: Tensor, state: Tensor | None) -> None:
    """The state in, the state out; and one token."""
    layer = tk.nn.LinearAttention(8, 2, log_decay="retention", norm="group", gate="silu")
    x, first = torch.randn(4, 3, 8), layer.init_state(4)
    assert_type(layer(x), Tensor)
    assert_type(layer(x, first), Pair)
    assert_type(layer.step(x[:, 0], first), Tensor)
    decay = tk.minimax_log_decay(2, layer=0, layers=4)
    assert_type(decay, Tensor)
    token, slots = q[0], torch.zeros(4, 2, 8, 8) if state is None else state
    assert_type(tk.linear_attention_step(token, token, token, slots, log_decay=decay), Tensor)


def around(x: Tensor) -> None:
    """What is no op."""
    explanation = tk.explain("layer_norm", x)
    assert_type(explanation, tk.Explanation)
    assert_type(explanation.notes, tuple[str, ...])
    assert_type(explanation.backend, Literal["cuda", "torch", "simulator"])
    with tk.backend("torch") as chosen:
        assert_type(chosen, tk.backend)
    assert_type(tk.include_dir(), str)
    assert_type(tk.__version__, str)
    tk.testing.assert_close(x, x, 0.0)


def mistakes(x: Tensor) -> Iterator[Callable[[], object]]:
    """Calls that a checker refuses, and Python too."""
    yield lambda: tk.gelu(x, approximate="erf")  # type: ignore[arg-type]
    yield lambda: tk.rms_norm(x, casting="gemma2")  # type: ignore[arg-type]
    yield lambda: tk.rms_norm(x, eps="1e-5")  # type: ignore[arg-type]
    yield lambda: tk.layer_norm(x, (8,))  # type: ignore[arg-type]
    yield lambda: tk.layer_norm(x, normalized_shape=8)  # type: ignore[arg-type]
    yield lambda: tk.attention(x, x, x, is_causal=True)  # type: ignore[call-overload]
    yield lambda: tk.attention(x, x, x, softcap=None)  # type: ignore[call-overload]
    yield lambda: tk.attention_qkvpacked(x, is_causal=True)  # type: ignore[call-overload]
    yield lambda: tk.cross_entropy(x, x, reduction="avg")  # type: ignore[arg-type]
    yield lambda: tk.nn.GELU("erf")  # type: ignore[arg-type]
    yield lambda: tk.nn.CrossEntropyLoss(reduction="avg")  # type: ignore[arg-type]
    yield lambda: tk.nn.LinearAttention(8, 2, gate="gelu")  # type: ignore[arg-type]
    yield lambda: tk.backend("cuda")  # type: ignore[arg-type]
    yield lambda: tk.flash(x)  # type: ignore[attr-defined]


def main() -> None:
    """Makes every call."""
    x = torch.randn(2, 8)
    q, table = torch.randn(1, 4, 2, 8), torch.randn(5, 4)
    for other in (None, x):
        norms(x, other)
    for wants_lse in (False, True):
        attention(q, wants_lse)
        of_ranks(q, wants_lse)
    activations(x)
    rotary(q, q, table)
    losses(x, torch.tensor([1, 1]))
    around(x)
    linear_attention(q, None)


if __name__ == "__main__":
    main()
