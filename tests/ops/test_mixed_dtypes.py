"""Under autocast, tensors of different dtypes meet in our ops as they do in torch's.

A linear layer returns 16 bits, what was not made by a product stays float32: weights of norms, a
residual stream, one half of a gate. Outside of autocast the ops refuse such calls, in a sentence.
"""

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import thunderkittens
from tests.tools.calls import BF16, FP32
from thunderkittens.testing.tolerance import accumulation

FP16 = torch.float16
PAIRS = pytest.mark.parametrize(
    ("first", "second"), [*itertools.product((FP32, BF16, FP16), repeat=2)], ids=str
)
X, UP, WEIGHT = torch.randn(4, 6, 32), torch.randn(4, 6, 32), torch.randn(32)


def _gated(activation, gate: Tensor, up: Tensor) -> Tensor:
    return activation(gate) * up


def _in_autocast(function, *leaves: Tensor) -> tuple[Tensor, list[Tensor]]:
    """A result and the gradients of the leaves."""
    leaves = [t.clone().requires_grad_() for t in leaves]
    with torch.autocast("cpu", BF16):
        y = function(*leaves)
    y = y if isinstance(y, Tensor) else y[0]
    return y, list(torch.autograd.grad(y, leaves, torch.ones_like(y)))


def _agree(ours: tuple, theirs: tuple, coarsest: torch.dtype) -> None:
    """Ours are rounded once, torch's at each of up to four steps, by eps / 2 of the largest.

    And sums, of at most 32 numbers, are added up in float32, in another order.
    """
    for got, want in zip([ours[0], *ours[1]], [theirs[0], *theirs[1]], strict=True):
        largest = float(want.detach().float().abs().max())
        bound = (2.5 * torch.finfo(coarsest).eps + accumulation(32)) * largest
        torch.testing.assert_close(got.float(), want.float(), rtol=0, atol=bound)


def _coarsest(*dtypes: torch.dtype) -> torch.dtype:
    return max(dtypes, key=lambda d: torch.finfo(d).eps)


@PAIRS
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (thunderkittens.swiglu, lambda g, u: _gated(F.silu, g, u)),
        (
            lambda g, u: thunderkittens.geglu(g, u, approximate="none"),
            lambda g, u: _gated(F.gelu, g, u),
        ),
    ],
    ids=["swiglu", "geglu"],
)
def test_gates(ours, theirs, first, second):
    leaves = X.to(first), UP.to(second)
    got, want = _in_autocast(ours, *leaves), _in_autocast(theirs, *leaves)
    assert got[0].dtype == want[0].dtype == torch.promote_types(first, second)
    assert [g.dtype for g in got[1]] == [first, second]
    _agree(got, want, _coarsest(first, second))


@PAIRS
def test_norms(first, second):
    leaves = X.to(first), WEIGHT.to(second)
    got = _in_autocast(thunderkittens.rms_norm, *leaves)
    want = _in_autocast(lambda x, w: F.rms_norm(x, (32,), w, 1e-6), *leaves)
    assert got[0].dtype == want[0].dtype == first
    assert [g.dtype for g in got[1]] == [first, second]
    _agree(got, want, _coarsest(first, second))
    got = _in_autocast(thunderkittens.layer_norm, *leaves)
    want = _in_autocast(lambda x, w: F.layer_norm(x.float(), (32,), w.float()), *leaves)
    assert got[0].dtype == first
    _agree(got, want, _coarsest(first, second))


@PAIRS
@pytest.mark.parametrize("op", ["add_layer_norm", "add_rms_norm"])
def test_residuals(op, first, second):
    function = getattr(thunderkittens, op)
    leaves = X.to(first), UP.to(second), WEIGHT.to(second)
    with torch.autocast("cpu", BF16):
        y, total = function(*leaves)
    assert y.dtype == first
    assert total.dtype == (second if second in (first, FP32) else FP32)
    torch.testing.assert_close(total, (X.to(first).float() + UP.to(second)).to(total.dtype))
    got = _in_autocast(function, *leaves)
    want = _in_autocast(lambda x, r, w: function(x.float(), r.float(), w.float()), *leaves)
    assert [g.dtype for g in got[1]] == [first, second, second]
    _agree(got, want, _coarsest(first, second))


@PAIRS
def test_rotary_turns_each_in_its_dtype(first, second):
    q, k = torch.randn(1, 5, 2, 8).to(first), torch.randn(1, 5, 1, 8).to(second)
    angles = torch.randn(5, 4)
    for tables in (FP32, second):
        cos, sin = angles.cos().to(tables), angles.sin().to(tables)
        with torch.autocast("cpu", BF16):
            got = thunderkittens.rotary(q, k, cos, sin)
        assert (got[0].dtype, got[1].dtype) == (first, second)
        for g, x in zip(got, (q, k), strict=True):
            want = thunderkittens.rotary(x.float(), x.float(), cos.float(), sin.float())[0]
            assert torch.equal(g, want.to(x.dtype))


def test_outside_of_autocast_they_are_refused():
    with pytest.raises(TypeError, match="swiglu: up must have dtype bfloat16"):
        thunderkittens.swiglu(X.to(BF16), UP)
    with torch.autocast("cpu", BF16, enabled=False), pytest.raises(TypeError, match="rms_norm"):
        thunderkittens.rms_norm(X, WEIGHT.to(BF16))


def test_what_is_no_floating_point_is_refused_inside_too():
    with torch.autocast("cpu", BF16), pytest.raises(TypeError, match="up must have dtype"):
        thunderkittens.swiglu(X, UP.to(torch.int64))


def test_float64_is_kept():
    with torch.autocast("cpu", BF16):
        assert thunderkittens.rms_norm(X.double(), WEIGHT.to(BF16)).dtype == torch.float64
        assert thunderkittens.swiglu(X.double(), UP).dtype == torch.float64


def test_compiled():
    """The casts are in the graph."""
    x, up, weight = X.to(BF16), UP.clone().requires_grad_(), WEIGHT.to(FP16)

    def block(x: Tensor, up: Tensor) -> Tensor:
        with torch.autocast("cpu", BF16):
            return thunderkittens.rms_norm(thunderkittens.swiglu(x, up), weight)

    results = []
    for function in (block, torch.compile(block, fullgraph=True, backend="aot_eager")):
        y = function(x, up)
        results.append((y, *torch.autograd.grad(y, up, torch.ones_like(y))))
    assert results[1][0].dtype == FP32
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)
