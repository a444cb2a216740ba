"""Other people's norms, also of a residual sum, as contenders; each is optional."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.harness import Call, Inputs, Outputs
from benchmarks.peers import compiled, find

EPS = 1e-6


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


# ---- rms norm: x [rows, width], weight [width] --------------------------------------------------


def torch_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """PyTorch's own, which is also what torch.compile is given."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, EPS)


def liger_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Liger's Triton kernel, which multiplies by the weight in x's dtype too."""
    run = find("liger_kernel.ops.rms_norm", "LigerRMSNormFunction", "liger-kernel")
    return run.apply(x, weight, EPS, 0.0, "llama", False)


def flash_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """flash-attention's Triton kernel."""
    run = find("flash_attn.ops.triton.layer_norm", "layer_norm_fn", "flash-attn")
    return run(x, weight, None, eps=EPS, is_rms_norm=True)


# ---- residual sums: x, residual [rows, width] → (norm, sum) -------------------------------------


def torch_add_layer_norm(x, residual, weight, bias) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's own sum and norm, which is also what torch.compile is given."""
    total = x + residual
    return torch.nn.functional.layer_norm(total, weight.shape, weight, bias, EPS), total


def torch_add_rms_norm(x, residual, weight, bias) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's own sum and norm; there is no bias."""
    total = x + residual
    return torch_rms_norm(total, weight), total


def torch_dropout_layer_norm(x, residual, weight, bias) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's own dropout, sum and norm."""
    return torch_add_layer_norm(torch.nn.functional.dropout(x, 0.1), residual, weight, bias)


def liger_add_rms_norm(x, residual, weight, bias) -> tuple[torch.Tensor, torch.Tensor]:
    """Liger's Triton kernel."""
    module = "liger_kernel.ops.fused_add_rms_norm"
    run = find(module, "LigerFusedAddRMSNormFunction", "liger-kernel")
    return run.apply(x, residual, weight, EPS, 0.0, "llama", False)


def flash_add_norm(rms: bool, dropout_p: float) -> Callable[..., Any]:
    """flash-attention's Triton kernel, as a function of x, residual, weight, bias."""

    def run(x, residual, weight, bias):
        norm = find("flash_attn.ops.triton.layer_norm", "layer_norm_fn", "flash-attn")
        options = {"eps": EPS, "dropout_p": dropout_p, "prenorm": True, "is_rms_norm": rms}
        return norm(x, weight, None if rms else bias, residual=residual, **options)

    return run


# ---- From such a function to a contender --------------------------------------------------------


def forward(function: Callable[..., Any], names: tuple[str, ...], checked: bool = True):
    """Calls it without gradients. Unless `checked`, its results are random, and none is shown."""

    def build(i: Inputs) -> Call:
        arguments = [i[name] for name in names]

        @torch.no_grad()
        def call():
            results = function(*arguments)
            if not checked:
                return ()
            return results if isinstance(results, tuple) else (results,)

        return call

    return build


def backward(function: Callable[..., Any], names: tuple[str, ...], checked: bool = True):
    """Differentiates it through autograd, once and again, by all that has a gradient."""

    def build(i: Inputs) -> Call:
        leaves = [i[name].detach().requires_grad_() for name in names]
        results = function(*leaves)
        outputs = results if isinstance(results, tuple) else (results,)
        arriving = [i["dy"], i["dsum"]][: len(outputs)]
        used = [t for name, t in zip(names, leaves, strict=True) if name != "bias" or i["has_bias"]]

        def call():
            found = torch.autograd.grad(outputs, used, arriving, retain_graph=True)
            return found if checked else ()

        return call

    return build


def compiled_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Under torch.compile."""
    return lambda *arguments: compiled(function)(*arguments)
