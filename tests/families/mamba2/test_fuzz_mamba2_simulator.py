"""The bounds of mamba2's fuzz near zero: what the kernels lose there, they allow."""

import torch

import thunderkittens
from tests.families.mamba2 import cases, fuzz
from tests.fuzz import judge

ONE = cases.Case(
    length=128,
    heads=1,
    head_width=8,
    state_width=8,
    dt_dtype=torch.float32,
    softplus=False,
    bias=False,
    states=False,
    d=0,
)


def problem(to_chunk: float):
    """Only the first token has an x, which decays by e^-to_chunk up to the second chunk; that one
    decays by 2^-30 in all, and its first token by 2^-0.1."""
    given = list(cases.make(ONE))
    given[0], given[3], given[4] = (torch.ones_like(given[i]) for i in (0, 3, 4))
    given[0][:, 1:] = 0
    given[1], given[2] = torch.zeros_like(given[1]), -torch.ones_like(given[2])
    for token, step in ((0, 1.0), (63, to_chunk), (64, 0.07), (100, 21.0)):
        given[1][:, token] = step
    return given


def test_what_is_lost_before_rows_are_brought_back(monkeypatch):
    """The state, times 2^-30, is no number of bf16: the kernel gives 0 for 8 · e^-73.07."""
    given = problem(73.0)
    with thunderkittens.backend("simulator"):
        got = thunderkittens.mamba2(*given[:5])
    each = fuzz.references(ONE, given)["y"]
    assert got[0, 64].eq(0).all() and each.want[0, 64].gt(1e-31).all()
    assert judge.right(got, each).all()
    monkeypatch.setattr(fuzz, "brought_back", lambda dtype: 1.0)
    assert not judge.right(got, fuzz.references(ONE, given)["y"])[0, 64].any()


def test_what_no_factor_loses_is_missed():
    each = fuzz.references(ONE, problem(50.0))["y"]
    got = each.want.bfloat16()
    assert judge.right(got, each).all()
    got[0, 64] = 0
    assert not judge.right(got, each)[0, 64].any()
