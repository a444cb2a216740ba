"""attention of packed sequences: what one holds changes no bit of another's o, lse or gradients."""

import contextlib
import math

import pytest
import torch
from torch import Tensor

import thunderkittens
from tests.tools import packed_apart
from tests.tools.in_simulator import needs_simulator

# Of a token, of none, and of one block or several; none of which begins where a block does.
ENDS = (0, 70, 71, 71, 201, 400)
SPOILED = (0, 3, 4)
INPUTS = ("q", "k", "v", "do", "dlse")


def run(given, causal: bool) -> dict[str, Tensor]:
    q, k, v = leaves = [given[name].detach().requires_grad_() for name in "qkv"]
    ends = torch.tensor(ENDS, dtype=torch.int32)
    packing = {f"cu_seqlens_{name}": ends for name in "qk"}
    packing |= {f"max_seqlen_{name}": 199 for name in "qk"}
    o, lse = thunderkittens.attention(q, k, v, causal=causal, return_lse=True, **packing)
    gradients = torch.autograd.grad((o, lse), leaves, (given["do"], given["dlse"].T))
    return dict(zip(("o", "lse", "dq", "dk", "dv"), (o, lse.T, *gradients), strict=True))


def check(width: int, dtype: torch.dtype, which: int, change, only=INPUTS) -> None:
    inputs = {name: torch.randn(ENDS[-1], 2, width).to(dtype) for name in INPUTS[:4]}
    inputs["dlse"] = torch.randn(ENDS[-1], 2)
    some = {name: inputs[name] for name in only}
    changed = {**inputs, **packed_apart.spoil(some, ENDS, which, change)}
    results = ("dq", "dk") if only != INPUTS else ("o", "lse", "dq", "dk", "dv")

    def judged(given) -> dict[str, Tensor]:
        found = run(given, causal=which == 3)
        return {name: found[name] for name in results}

    packed_apart.check_apart(judged, inputs, changed, ENDS, which)


@pytest.fixture(
    params=["torch", *(pytest.param(k, marks=needs_simulator) for k in ("specialised", "generic"))]
)
def backend(request, monkeypatch) -> contextlib.AbstractContextManager:
    if request.param == "torch":
        return thunderkittens.backend("torch")
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    kernel = "generic" if request.param == "generic" else None
    return thunderkittens.backend("simulator", kernel=kernel)


@pytest.mark.parametrize("which", SPOILED)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_not_finite_stays_in_its_sequence(value, which, backend):
    with backend:
        check(64, torch.bfloat16, which, lambda _: value)


@pytest.mark.parametrize("which", SPOILED)
@pytest.mark.parametrize("width", [64, 128, 256])
def test_large_values_take_no_digits_from_others(width, which, backend):
    """dq's units are those of the keys of its own sequence."""
    with backend:
        check(width, torch.bfloat16, which, lambda x: x * 2.0**20, only=("v",))
