"""Long sequences: the gradients of decays are as near to float64 as those of short ones.

Sums of q · dq − k · dk over all of a sequence are not: each term has the roundings of 16-bit
products, which add up. Begun anew at anchors, and held at both ends, they are off by what the terms
of that many tokens add up to (`drift`), however long the sequence is.
"""

import itertools

import torch
from torch import Tensor

import thunderkittens
from tests.families.linear_attention.cases import BF16

ANCHOR = 256  # tokens
UNIT = 2.0**-8  # what a number of bf16 is rounded to, of itself; the error is half of it at most
# Of rounded products, all are off by UNIT / √12 of their size, or by √3 of that: weights, decayed
# values and states are rounded.
PRODUCT = UNIT / 2
OF_FEW = 1.5  # what the rms of the errors of few anchors may be, of what it is on average
ENDS = (0.0, 0.01, 0.27, 0.27, 0.64, 1.0)  # of packed sequences, of all tokens
DECAYS = ("uniform", "equal", "strong")


def decays(kind: str, length: int, heads: int, device: str) -> Tensor:
    if kind == "equal":
        return torch.full((length, heads), -0.1, device=device)
    least, most = {"uniform": (-0.05, 0.0), "strong": (-3.0, -1.0)}[kind]
    return torch.empty(length, heads, device=device).uniform_(least, most)


def ends_of(length: int) -> list[int]:
    return [int(length * x) for x in ENDS]


def rms(x: Tensor) -> Tensor:
    """Of the tokens, for each head."""
    return x.double().square().mean(0).sqrt()


def drift(terms: Tensor, anchor: int = ANCHOR) -> Tensor:
    """The rms, for each head, of a walk over `anchor` tokens that is brought back to where it ends.

    A step is the error of a difference of two such terms. A bridge's variance is in the middle a
    fourth of what the walk's is at its end, and on average a sixth.
    """
    return PRODUCT * (2 * anchor / 6) ** 0.5 * rms(terms)


def own(q: Tensor, k: Tensor, v: Tensor, d_o: Tensor) -> Tensor:
    """What of q · dq and k · dk is a token's own, and not rounded."""
    q, k, v, d_o = (t.double() for t in (q, k, v, d_o))
    return ((q * k).sum(-1) * (v * d_o).sum(-1)).view(-1, q.shape[-2])


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
    bound = drift((q.double() * dq).sum(-1) - 64**-0.5 * own(q, k, v, d_o)) + PRODUCT * rms(exact)
    error = rms(got - exact)
    bound = OF_FEW * bound
    assert (error <= bound).all(), f"{error / rms(exact)}, of the norm; bounds {bound / rms(exact)}"
    if not packed:
        return
    for start, end in itertools.pairwise(ends_of(length)):
        if end > start:
            assert got[start:end].isfinite().all()
