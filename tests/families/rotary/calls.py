"""Calls of rotary, for the tests of all ops."""

import torch
from torch import Tensor

import thunderkittens
from tests.tools.calls import Call, Recorded


def _turned(q: Tensor, k: Tensor, inplace: bool) -> tuple[Tensor, Tensor]:
    angles = torch.linspace(0, 3, 33 * 8, device=q.device).view(33, 8)
    q, k = (t.clone() if inplace else t for t in (q, k))
    return thunderkittens.rotary(q, k, angles.cos(), angles.sin(), inplace=inplace)


CALLS = (
    Call("rotary", ((1, 33, 4, 16),) * 2, lambda *t: _turned(*t, inplace=False)),
    Call("rotary", ((1, 33, 4, 16),) * 2, lambda *t: _turned(*t, inplace=True), "in place"),
)
RECORDED = (
    Recorded(
        "rotary",
        ((1, 5, 2, 4), (1, 5, 1, 4)),
        lambda q, k: thunderkittens.rotary(q, k, torch.ones(5, 2), torch.zeros(5, 2)),
        refuses=None,
    ),
)
SHORT_FORMS = {
    torch.ops.thunderkittens.rotary: lambda x: (
        *(x(1, 5, 2, 4) for _ in "qk"),
        *(torch.randn(5, 2) for _ in ("cos", "sin")),
    ),
}
X, TABLE = torch.ones(1, 2, 2, 4), torch.ones(2, 2)
OFFSETS = "rotary: offsets must be an integer, a tensor or None, got"
WRONG_TYPES = {
    "rotary: interleaved must be True or False, got str 'yes'": (
        lambda: thunderkittens.rotary(X, X, TABLE, TABLE, interleaved="yes")
    ),
    f"{OFFSETS} float 1.0": lambda: thunderkittens.rotary(X, X, TABLE, TABLE, offsets=1.0),
    f"{OFFSETS} list [1]": lambda: thunderkittens.rotary(X, X, TABLE, TABLE, offsets=[1]),
    f"{OFFSETS} True": lambda: thunderkittens.rotary(X, None, TABLE, TABLE, offsets=True),
    "rotary: max_seqlen must be an integer, got True": (
        lambda: thunderkittens.rotary(X, X, TABLE, TABLE, max_seqlen=True)
    ),
    "rotary: q must be a tensor, got list [1]": (
        lambda: thunderkittens.rotary([1], None, TABLE, TABLE)
    ),
}
