"""Gradients of hedgehog_attention, judged by those of its definition in float64."""

import torch
from torch import Tensor

import thunderkittens
from tests.families.hedgehog_attention import cases
from tests.families.hedgehog_attention.cases import BF16, FP16, FP64, Case
from thunderkittens.testing import tolerance

NAMES = ("dq", "dk", "dv", "dq_map", "dk_map", "dalpha", "dbeta")


def plain(found: list[Case]) -> list[Case]:
    """The cases without states, whose gradients kernels compute."""
    import dataclasses

    return [dataclasses.replace(case, states=False) for case in found]


def make(case: Case, device: str = "cpu") -> tuple[Tensor, ...]:
    """q, k, v, q_map, k_map, alpha, beta and the gradient of y."""
    inputs = cases.make(case, device)[:7]
    return *inputs, torch.randn(*inputs[0].shape[:3], case.value_dim, device=device).to(case.dtype)


def run(inputs) -> list[Tensor]:
    """All gradients, by the backend in force."""
    *tensors, dy = inputs
    leaves = [t.detach().requires_grad_() for t in tensors]
    *given, alpha, beta = leaves
    y = thunderkittens.hedgehog_attention(*given, alpha=alpha, beta=beta)
    return list(torch.autograd.grad(y, leaves, dy))


def exact(inputs) -> list[Tensor]:
    """The same of the definition, in float64."""
    *tensors, dy = [t.double() for t in inputs]
    leaves = [t.requires_grad_() for t in tensors]
    return list(torch.autograd.grad(cases.definition(*leaves)[0], leaves, dy))


def check(case: Case, inputs, results) -> None:
    """Asserts that each gradient is off by no more than its independent roundings add up to."""
    unit = tolerance.unit(case.dtype)
    # On a path from dy to a gradient: features, the state (twice), scores' gradients, logits', …
    roundings = 8 if case.dtype in (BF16, FP16) else 100
    for name, got, want, leaf in zip(NAMES, results, exact(inputs), inputs, strict=False):
        assert got.dtype == leaf.dtype, name
        assert got.is_contiguous(), name
        error, size = (got.double() - want).norm().item(), want.norm().item()
        print(f"{str(case)} {name}: {error/unit:.3g} {size:.3g} ratio {error / unit / (size+1e-30):.3g}")
