"""Other people's cross entropy, as contenders: logits [rows, width], targets [rows]."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks import peers
from benchmarks.harness import Call, Inputs

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def torch_loss(i: Inputs) -> Call:
    """PyTorch's own kernels, no gradient."""
    return lambda: (torch.nn.functional.cross_entropy(i["logits"], i["targets"]),)


def loss_formula(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """What torch.compile is given."""
    return torch.nn.functional.cross_entropy(logits.float(), targets)


def compiled_loss(i: Inputs) -> Call:
    """PyTorch's formula in float32, compiled, no gradient."""
    run = peers.compiled(loss_formula)
    return lambda: (run(i["logits"], i["targets"]),)


def with_gradient(i: Inputs, loss: Loss, own_logits: bool = False) -> Call:
    """A loss and the gradient of its logits, through autograd.

    `own_logits`: the loss writes over them; what is timed goes on from there.
    """
    logits = i["logits"].clone() if own_logits else i["logits"].detach()
    logits.requires_grad_()

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        result = loss(logits, i["targets"])
        return result.detach(), torch.autograd.grad(result, logits)[0]

    return call


def torch_gradient(i: Inputs) -> Call:
    """PyTorch's own kernels, forward and backward."""
    return with_gradient(i, torch.nn.functional.cross_entropy)


def compiled_gradient(i: Inputs) -> Call:
    """PyTorch's formula in float32, compiled, forward and backward."""
    return with_gradient(i, peers.compiled(loss_formula))


def liger_gradient(i: Inputs) -> Call:
    """Liger's Triton kernel, whose forward writes the gradient over the logits."""
    module = "liger_kernel.transformers.functional"
    return with_gradient(
        i, peers.find(module, "liger_cross_entropy", "liger-kernel"), own_logits=True
    )


def flash_gradient(i: Inputs) -> Call:
    """flash-attention's Triton kernels, forward and backward."""
    run = peers.find("flash_attn.ops.triton.cross_entropy", "cross_entropy_loss", "flash-attn")
    return with_gradient(i, lambda logits, targets: run(logits, targets)[0].mean())


# ---- Behind a linear layer: x [rows, hidden], weight [width, hidden] -----------------------------


def linear_gradients(i: Inputs, loss: Callable[..., torch.Tensor]) -> Call:
    """A loss of x, weight and targets, and the gradients of both, through autograd."""
    leaves = [i[name].detach().requires_grad_() for name in ("x", "weight")]

    def call() -> tuple[torch.Tensor, ...]:
        result = loss(*leaves, i["targets"])
        return result.detach(), *torch.autograd.grad(result, leaves)

    return call


def linear_formula(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """All logits at once."""
    logits = torch.nn.functional.linear(x, weight)
    return torch.nn.functional.cross_entropy(logits.float(), targets)


def torch_linear(i: Inputs) -> Call:
    """PyTorch's own kernels, all logits at once."""
    return linear_gradients(i, linear_formula)


def compiled_linear(i: Inputs) -> Call:
    """The same, compiled."""
    return linear_gradients(i, peers.compiled(linear_formula))


def liger_linear(i: Inputs) -> Call:
    """Liger's chunks."""
    module = "liger_kernel.transformers.functional"
    run = peers.find(module, "liger_fused_linear_cross_entropy", "liger-kernel")
    return linear_gradients(i, run)
