"""Gradients of hedgehog_attention without states, judged by those of its definition in float64."""

import dataclasses

import torch
from torch import Tensor

import thunderkittens
from tests.families.hedgehog_attention import cases
from tests.families.hedgehog_attention.cases import FP16, Case
from tests.tools import kernel_kinds
from thunderkittens.testing import tolerance

NAMES = ("dq", "dk", "dv", "dq_map", "dk_map", "dalpha", "dbeta")
WEIGHTS = ({"size": 0.0}, {"size": 5.0}, {"alpha": 0.0}, {"alpha": 100.0, "beta": 0.01})


def without_states(found: list[Case]) -> list[Case]:
    return [dataclasses.replace(case, states=False) for case in found]


ALL = [
    *without_states(cases.lengths(Case())),
    *without_states(cases.layouts(Case())),
    *without_states(cases.widths(Case())),
    *without_states(cases.layouts(Case(heads=1, head_dim=72, value_dim=48))),
    *(Case(states=False, **changes) for changes in WEIGHTS),
    Case(dtype=FP16, states=False),
    Case(3, 5, 3, states=False),
    # Several runs of blocks, and sums of more than eight slots.
    Case(length=1030, heads=1, states=False),
]
# What tests/tools/budgets.py measures.
BUDGETS = {
    "hedgehog_attention_backward": Case(1, 256, 1, states=False),
    "hedgehog_attention_backward, generic kernel": Case(1, 256, 1, states=False, generic=True),
}


def make(case: Case, device: str = "cpu") -> tuple[Tensor, ...]:
    """q, k, v, q_map, k_map, alpha, beta and the gradient of y."""
    inputs = cases.make(case, device)[:7]
    dy = torch.randn(*inputs[0].shape[:3], case.value_dim, device=device).to(case.dtype)
    return *inputs, cases.lay_out(dy, case.layout)


def differentiate(function, inputs) -> list[Tensor]:
    *tensors, dy = inputs
    leaves = [t.detach().requires_grad_() for t in tensors]
    return list(torch.autograd.grad(function(*leaves), leaves, dy))


def run_case(case: Case, inputs) -> list[Tensor]:
    """All gradients, by the backend in force, of a case without states."""

    def call(*tensors):
        *given, alpha, beta = tensors
        return thunderkittens.hedgehog_attention(*given, alpha=alpha, beta=beta)

    assert not case.states
    with kernel_kinds.taking(case.generic):
        return differentiate(call, inputs)


def check_case(case: Case, inputs, results) -> None:
    """Asserts that each gradient is off by no more than independent roundings add up to.

    On a path from dy to a gradient there are about ten, each of a root mean square of u / √3: of
    features, weights, states and what is added to them, scores, logits and the result. Each of
    their terms is a part of dy by numbers of about 1; where they cancel, a hundredth of it is left.
    """
    unit = tolerance.unit(case.dtype)
    exact = differentiate(lambda *t: cases.definition(*t)[0], [t.double() for t in inputs])
    cancelled = inputs[-1].double().norm() / 100
    for name, got, want, leaf in zip(NAMES, results, exact, inputs, strict=False):
        assert got.dtype == leaf.dtype, name
        assert got.is_contiguous(), name
        error, size = (got.double() - want).norm(), want.norm() + cancelled
        assert error <= 4 * unit * size, f"{name}: off by {error / size:.2e} of its size"
