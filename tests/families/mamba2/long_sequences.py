"""Long sequences: gradients of A, dt and dt_bias are as near to float64 as those of short ones."""

import math

import torch
from torch import Tensor

import thunderkittens
from tests.families.mamba2.cases import BF16
from tests.tools.long_sequences import OF_FEW, PRODUCT, drift, ends_of, rms

ANCHOR = 128  # tokens
OF_FEWER = 2  # the same of a number of each of a few heads
KINDS = ("usual", "strong")


def steps_and_decays(kind: str, length: int, heads: int, device: str) -> tuple[Tensor, Tensor]:
    """dt', as models have them, or near 1; and A."""
    uniform = torch.rand(length, heads, device=device)
    if kind == "strong":
        return 0.5 + uniform, -0.5 - torch.rand(heads, device=device)
    return torch.exp(math.log(0.001) + math.log(100) * uniform), -1 - 15 * torch.rand(
        heads, device=device
    )


def check(
    kind: str, length: int, heads: int, packed: bool, kernel: str | None, device: str
) -> None:
    """By the backend "auto" on a GPU, else by the simulator."""
    backend = "auto" if device == "cuda" else "simulator"
    ends = torch.tensor(ends_of(length), device=device) if packed else None
    x, B, C, dy = (torch.randn(length, heads, 64, device=device).to(BF16) for _ in range(4))
    steps, A = steps_and_decays(kind, length, heads, device)
    bias = torch.randn(heads, device=device)
    dt = torch.log(torch.expm1(steps.double())).float() - bias

    def gradients(x, dt, A, B, C, bias, dy) -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in (A, dt, bias, B, C)]
        A, dt, bias, B, C = leaves
        tensors = [x, dt, B, C, dy]
        if not packed:
            tensors = [t.unsqueeze(0) for t in tensors]
        x, dt, B, C, dy = tensors
        y = thunderkittens.mamba2(x, dt, A, B, C, dt_bias=bias, dt_softplus=True, cu_seqlens=ends)
        return list(torch.autograd.grad(y, leaves, dy))

    given = (x, dt, A, B, C, bias, dy)
    with thunderkittens.backend(backend, kernel=kernel):
        dA, ddt, d_bias, *_ = gradients(*given)
    with thunderkittens.backend("torch"):
        exact_A, exact_dt, exact_bias, dB, dC = gradients(*(t.double() for t in given))
    # d(dt) = (dw + A dg) σ, w dw = B · dB
    steps = (dt.double() + bias.double()).exp().log1p()
    slope = -torch.expm1(-steps)  # σ
    d_weight = (B.double() * dB).sum(-1) / steps
    d_decay = (exact_dt / slope - d_weight) / A.double()
    # What dg is off by, and what sums of it with such weights over a tile are. A bridge's integral
    # has a twelfth of its length's cube as variance; an anchor's error is a tile's.
    terms = (C.double() * dC).sum(-1)
    walk, at_anchor = drift(terms, ANCHOR), PRODUCT * rms(d_decay)
    of_sum = walk * (ANCHOR / 2) ** 0.5 + at_anchor * ANCHOR**0.5

    def summed(weights: Tensor) -> Tensor:
        return rms(weights) * math.sqrt(length) * of_sum

    of_dt = PRODUCT * rms(d_weight * slope) + rms(A.double().abs() * slope) * (walk + at_anchor)
    of_bias = summed(A.double() * slope) + PRODUCT * math.sqrt(length) * rms(d_weight * slope)
    for name, got, exact, bound in (
        ("dA", dA, exact_A, summed(steps)),
        ("d(dt)", ddt, exact_dt, None),
        ("d(dt_bias)", d_bias, exact_bias, of_bias),
    ):
        if bound is None:
            error, size, bound = rms(got - exact), rms(exact), OF_FEW * of_dt
        else:  # of a number of each head, the norm over heads
            error, size, bound = (t.norm() for t in (got - exact, exact, OF_FEWER * bound))
        assert (error <= bound).all(), f"{name}: {error / size} of the norm; {bound / size}"
