"""Long sequences: the gradients of decays are as near to float64 as those of short ones."""

import itertools

import torch
from torch import Tensor

import thunderkittens
from tests.families.linear_attention.cases import BF16
from tests.tools.long_sequences import OF_FEW, PRODUCT, drift, ends_of, rms

ANCHOR = 256  # tokens
DECAYS = ("uniform", "equal", "strong")


def decays(kind: str, length: int, heads: int, device: str) -> Tensor:
    if kind == "equal":
        return torch.full((length, heads), -0.1, device=device)
    least, most = {"uniform": (-0.05, 0.0), "strong": (-3.0, -1.0)}[kind]
    return torch.empty(length, heads, device=device).uniform_(least, most)


def check(
    kind: str, length: int, heads: int, packed: bool, kernel: str | None, device: str
) -> None:
    """By the backend "auto" on a GPU, else by the simulator."""
    backend = "auto" if device == "cuda" else "simulator"
    ends = torch.tensor(ends_of(length), device=device) if packed else None
    q, k, v, d_o = (torch.randn(length, heads, 64, device=device).to(BF16) for _ in range(4))
    given = [q, k, v, decays(kind, length, heads, device)]
    if not packed:
        given, d_o = [t.unsqueeze(0) for t in given], d_o.unsqueeze(0)

    def gradients(tensors, d_o) -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in tensors]
        *qkv, g = leaves
        o = thunderkittens.linear_attention(*qkv, log_decay=g, cu_seqlens=ends)
        found = torch.autograd.grad(o, [leaves[0], g], d_o)
        return [t if packed else t.squeeze(0) for t in found]

    with thunderkittens.backend(backend, kernel=kernel):
        _, got = gradients(given, d_o)
    with thunderkittens.backend("torch"):
        dq, exact = gradients([t.double() for t in given], d_o.double())
    # Of an anchor the states are off by as much as products are, and one is rounded.
    bound = drift((q.double() * dq).sum(-1), ANCHOR) + PRODUCT * rms(exact)
    error = rms(got - exact)
    bound = OF_FEW * bound
    assert (error <= bound).all(), f"{error / rms(exact)}, of the norm; bounds {bound / rms(exact)}"
    if not packed:
        return
    for start, end in itertools.pairwise(ends_of(length)):
        if end > start:
            assert got[start:end].isfinite().all()
