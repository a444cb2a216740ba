"""layer_norm on the CPU (ATen backend), and what holds on every backend alike."""

import itertools

import pytest
import torch

import thunderkittens
from tests.families.norm import cases
from tests.families.norm.cases import BF16, FP16, FP32, FP64, Case
from thunderkittens.testing import assert_close, check_memory, memory, tolerance

ALL = [
    *cases.widths((*cases.WIDTHS, 70000), (FP32, FP16, BF16, FP64)),
    *cases.options(129),
    *cases.layouts(33),
    *cases.regimes(64),
    Case(768, (65,), FP32),
    Case(5, (), FP32),
    Case(5, (2, 1, 3), BF16),
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check(case, inputs, cases.run(*inputs, case.eps))


@pytest.mark.parametrize("case", [*cases.layouts(9), *cases.options(9)], ids=str)
def test_memory(case):
    """Inputs and guards stay as they were, and nothing outside the tensors shows in the results."""
    inputs = cases.make(case)
    cases.check(case, inputs, check_memory(lambda *t: cases.run(*t, case.eps), *inputs))


@pytest.mark.parametrize("dtype", [FP32, BF16, FP64])
def test_statistics(dtype):
    x = torch.randn(4, 5, 100).to(dtype)
    y, mean, rstd = torch.ops.thunderkittens.layer_norm_forward(x, None, None, 1e-5)
    statistics = FP64 if dtype == FP64 else FP32
    assert mean.dtype == rstd.dtype == statistics
    slack = tolerance.accumulation(100, statistics)
    wide = x.double()
    assert_close(mean, wide.mean(-1), slack * wide.abs().mean(-1), "mean")
    want = (wide.var(-1, correction=0) + 1e-5).rsqrt()
    assert_close(rstd, want, 2 * slack * want, "rstd")
    assert torch.equal(y, thunderkittens.layer_norm(x))


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_gradcheck(weight, bias):
    x = torch.randn(3, 2, 7, dtype=FP64, requires_grad=True)
    w = torch.randn(7, dtype=FP64, requires_grad=True) if weight else None
    b = torch.randn(7, dtype=FP64, requires_grad=True) if bias else None
    given = [t for t in (x, w, b) if t is not None]

    def call(*_):
        return thunderkittens.layer_norm(x, w, b, 1e-3)

    assert torch.autograd.gradcheck(call, given)


SUBSETS = list(itertools.product([False, True], repeat=3))


@pytest.mark.parametrize("needs", SUBSETS, ids=str)
def test_gradients_that_are_wanted(needs):
    """Every subset of requires_grad gives the same numbers as all of them together."""
    inputs = cases.make(Case(40))
    full = cases.run(*inputs)[1:]
    leaves = [t.clone().requires_grad_(n) for t, n in zip(inputs[:3], needs, strict=True)]
    y = thunderkittens.layer_norm(*leaves)
    assert y.requires_grad == any(needs)
    if any(needs):
        y.backward(inputs[3])
    for leaf, want, need in zip(leaves, full, needs, strict=True):
        assert (leaf.grad is not None) == need
        assert not need or torch.equal(leaf.grad, want)


def test_unwanted_gradients_are_not_computed():
    x, weight, bias, dy = cases.make(Case(40))
    _, mean, rstd = torch.ops.thunderkittens.layer_norm_forward(x, weight, bias, 1e-5)
    backward = torch.ops.thunderkittens.layer_norm_backward
    for needs in SUBSETS:
        results = backward(dy, x, weight, bias, mean, rstd, needs)
        assert [r.numel() > 0 for r in results] == list(needs)


def test_backward_twice_through_one_graph():
    x, weight, bias, dy = cases.make(Case(40))
    x.requires_grad_()
    y = thunderkittens.layer_norm(x, weight, bias)
    (first,) = torch.autograd.grad(y, x, dy, retain_graph=True)
    (second,) = torch.autograd.grad(y, x, dy)
    assert torch.equal(first, second)


def test_double_backward_raises():
    x = torch.randn(3, 8, requires_grad=True)
    y = thunderkittens.layer_norm(x)
    (dx,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="layer_norm: double backward is not supported"):
        dx.sum().backward()


def test_forward_mode_raises():
    """Silently dropping the tangent would be a wrong answer."""
    x = torch.randn(3, 8)
    message = "layer_norm: forward-mode differentiation is not supported"
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(NotImplementedError, match=message):
            thunderkittens.layer_norm(dual)
        with pytest.raises(NotImplementedError, match=message):
            thunderkittens.layer_norm(dual.requires_grad_(), torch.ones(8))


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0, 0), (2, 0, 8), (0,)], ids=str)
def test_empty(shape):
    x = torch.randn(shape, requires_grad=True)
    weight = torch.randn(shape[-1], requires_grad=True)
    bias = torch.randn(shape[-1], requires_grad=True)
    with memory.poisoned_outputs():
        y = thunderkittens.layer_norm(x, weight, bias)
        y.sum().backward()
    assert y.shape == x.grad.shape == x.shape
    assert torch.equal(weight.grad, torch.zeros(shape[-1]))
    assert torch.equal(bias.grad, torch.zeros(shape[-1]))
    thunderkittens.layer_norm(torch.ones(2, 4))  # and the next call is fine


def test_nan_stays_in_its_row():
    x = torch.randn(4, 16)
    clean = thunderkittens.layer_norm(x)
    x[2, 5] = float("nan")
    y = thunderkittens.layer_norm(x)
    assert y[2].isnan().all()
    assert torch.equal(y[[0, 1, 3]], clean[[0, 1, 3]])


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_autocast_casts_nothing(dtype):
    x = torch.randn(3, 16, requires_grad=True)
    weight = torch.randn(16, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        y = thunderkittens.layer_norm(x, weight)
        half = thunderkittens.layer_norm(x.to(dtype), weight)
    assert (y.dtype, half.dtype) == (FP32, dtype)
    (y.sum() + half.sum()).backward()
    assert x.grad.dtype == weight.grad.dtype == FP32


# ---- torch.library.opcheck and torch.compile -----------------------------------------------------

CHECKED = [
    Case(8),
    Case(7, (2, 3), BF16),
    Case(9, (2, 3), FP16, FP32, None),
    Case(16, (4,), FP64, FP64, FP64),
    Case(1, (1,)),
    Case(12, (2, 3), weight=None, bias=None),
    *(Case(10, (2, 3), layout=layout) for layout in cases.LAYOUTS[1:5]),
]


@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_opcheck(case):
    x, weight, bias, _ = cases.make(case)
    leaves = [t if t is None else t.requires_grad_() for t in (x, weight, bias)]
    torch.library.opcheck(torch.ops.thunderkittens.layer_norm.default, (*leaves, case.eps))


@pytest.mark.parametrize("case", CHECKED[::3], ids=str)
def test_opcheck_of_the_inner_ops(case):
    x, weight, bias, dy = cases.make(case)
    ops = torch.ops.thunderkittens
    torch.library.opcheck(ops.layer_norm_forward.default, (x, weight, bias, case.eps))
    _, mean, rstd = ops.layer_norm_forward(x, weight, bias, case.eps)
    for needs in ([True, weight is not None, bias is not None], [False, False, False]):
        torch.library.opcheck(
            ops.layer_norm_backward.default, (dy, x, weight, bias, mean, rstd, needs)
        )


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic):
    """No graph break, one graph for all shapes when dynamic, and the bits of eager."""
    compiled = torch.compile(
        thunderkittens.layer_norm, fullgraph=True, dynamic=dynamic, backend="aot_eager"
    )
    for leading in [(3,), (5,), (7,)]:
        inputs = cases.make(Case(24, leading))
        eager = cases.run(*inputs)
        leaves = [t.clone().requires_grad_() for t in inputs[:3]]
        y = compiled(*leaves)
        results = [y.detach(), *torch.autograd.grad(y, leaves, inputs[3])]
        for got, want in zip(results, eager, strict=True):
            assert memory.bits_equal(got, want)


def test_compile_with_inductor():
    compiled = torch.compile(thunderkittens.layer_norm, fullgraph=True)
    x = torch.randn(2, 3, 24).transpose(0, 1)
    assert torch.equal(compiled(x), thunderkittens.layer_norm(x))


def test_export():
    class Model(torch.nn.Module):
        def forward(self, x):
            return thunderkittens.layer_norm(x)

    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(Model(), (torch.randn(4, 8),), dynamic_shapes=({0: rows},))
    x = torch.randn(9, 8)
    assert torch.equal(exported.module()(x), thunderkittens.layer_norm(x))


def test_checkpoint():
    x = torch.randn(3, 4, 8, requires_grad=True)
    direct = thunderkittens.layer_norm(x)
    again = torch.utils.checkpoint.checkpoint(thunderkittens.layer_norm, x, use_reentrant=False)
    assert torch.equal(direct, again)
    first = torch.autograd.grad(direct.square().sum(), x)[0]
    assert torch.equal(first, torch.autograd.grad(again.square().sum(), x)[0])
