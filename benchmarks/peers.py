"""Other people's kernels, as contenders: each is optional, and says why it is absent."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import torch
import torch.nn.attention

from benchmarks.harness import Call, Inputs, MissingPeer, Outputs


def find(module: str, attribute: str, package: str) -> Any:
    """An attribute of an optional module; raises MissingPeer when it cannot be had."""
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as problem:
        if importlib.util.find_spec(module.split(".")[0]) is None:
            raise MissingPeer(f"`{package}` is not installed") from problem
        raise MissingPeer(f"`{package}` cannot be imported: {problem}") from problem
    except AttributeError as problem:
        raise MissingPeer(f"this version of `{package}` has no {module}.{attribute}") from problem


@functools.cache
def compiled(function: Any) -> Any:
    """The function under torch.compile, one graph, specialised for each shape."""
    torch._dynamo.config.recompile_limit = 256
    return torch.compile(function, fullgraph=True, dynamic=False)


# ---- layer norm: x [rows, width], weight, bias [width]; backward also dy [rows, width] ----------


def torch_layer_norm(i: Inputs) -> Call:
    """PyTorch's own kernel."""
    shape = i["weight"].shape
    return lambda: (torch.nn.functional.layer_norm(i["x"], shape, i["weight"], i["bias"]),)


def layer_norm_formula(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """What torch.compile is given."""
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


def compiled_layer_norm(i: Inputs) -> Call:
    """PyTorch's formula, compiled."""
    run = compiled(layer_norm_formula)
    return lambda: (run(i["x"], i["weight"], i["bias"]),)


def liger_layer_norm(i: Inputs) -> Call:
    """Liger's Triton kernel."""
    run = find("liger_kernel.ops.layer_norm", "layer_norm_forward", "liger-kernel")
    return lambda: run(i["x"], i["weight"], i["bias"], 1e-5)[:1]


def flash_layer_norm(i: Inputs) -> Call:
    """flash-attention's Triton kernel."""
    run = find("flash_attn.ops.triton.layer_norm", "_layer_norm_fwd", "flash-attn")
    return lambda: run(i["x"], i["weight"], i["bias"], 1e-5)[:1]


def torch_layer_norm_backward(i: Inputs) -> Call:
    """PyTorch's own kernels, the statistics given."""
    shape = list(i["weight"].shape)
    mean, rstd = torch.ops.aten.native_layer_norm(i["x"], shape, i["weight"], i["bias"], 1e-5)[1:]
    run = torch.ops.aten.native_layer_norm_backward
    return lambda: run(i["dy"], i["x"], shape, mean, rstd, i["weight"], i["bias"], [True] * 3)


def layer_norm_backward_formula(
    dy: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> Outputs:
    """What torch.compile is given; it takes PyTorch's op apart."""
    shape = list(weight.shape)
    run = torch.ops.aten.native_layer_norm_backward
    return run(dy, x, shape, mean, rstd, weight, bias, [True] * 3)


def compiled_layer_norm_backward(i: Inputs) -> Call:
    """PyTorch's formula of the backward, compiled, the statistics given."""
    shape = list(i["weight"].shape)
    mean, rstd = torch.ops.aten.native_layer_norm(i["x"], shape, i["weight"], i["bias"], 1e-5)[1:]
    run = compiled(layer_norm_backward_formula)
    return lambda: run(i["dy"], i["x"], mean, rstd, i["weight"], i["bias"])


def liger_layer_norm_backward(i: Inputs) -> Call:
    """Liger's Triton kernel, the statistics given."""
    forward = find("liger_kernel.ops.layer_norm", "layer_norm_forward", "liger-kernel")
    run = find("liger_kernel.ops.layer_norm", "layer_norm_backward", "liger-kernel")
    mean, rstd = forward(i["x"], i["weight"], i["bias"], 1e-5)[2:4]
    return lambda: run(i["dy"], i["x"], i["weight"], i["bias"], mean, rstd)[:3]


def flash_layer_norm_backward(i: Inputs) -> Call:
    """flash-attention's Triton kernel, the statistics given."""
    forward = find("flash_attn.ops.triton.layer_norm", "_layer_norm_fwd", "flash-attn")
    run = find("flash_attn.ops.triton.layer_norm", "_layer_norm_bwd", "flash-attn")
    results = forward(i["x"], i["weight"], i["bias"], 1e-5)
    # Where mean and rstd stand among the results differs from version to version.
    mean, rstd = (t for t in results if t is not None and t.dtype == torch.float32 and t.dim() == 1)
    return lambda: run(i["dy"], i["x"], i["weight"], i["bias"], 1e-5, mean, rstd)[:3]


# ---- attention: q, k, v [batch, seq, heads, head_dim] -------------------------------------------


def sdpa(i: Inputs, backend: str, causal: bool) -> Call:
    """`scaled_dot_product_attention` held to one of its backends ("CUDNN_ATTENTION", …)."""
    q, k, v = (i[name].transpose(1, 2) for name in "qkv")
    choice = getattr(torch.nn.attention.SDPBackend, backend)

    def call() -> tuple[torch.Tensor]:
        with torch.nn.attention.sdpa_kernel(choice):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return (o.transpose(1, 2),)

    return call
