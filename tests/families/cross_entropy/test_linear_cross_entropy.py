"""linear_cross_entropy on the CPU (ATen backend), and what holds on every backend alike."""

import itertools

import pytest
import torch

import thunderkittens
from tests.families.cross_entropy import linear_cases as cases
from tests.families.cross_entropy.linear_cases import BF16, FP16, FP32, FP64, LinearCase
from thunderkittens.testing import check_memory, memory


@pytest.mark.parametrize("case", cases.every(dtypes=(FP32, FP16, BF16, FP64)), ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check(case, inputs, cases.run(case, *inputs))


@pytest.mark.parametrize("case", cases.every(9)[::3], ids=str)
def test_memory(case):
    """Inputs and guards stay as they were, and nothing outside the tensors shows in the results."""
    inputs = cases.make(case)
    cases.check(case, inputs, check_memory(lambda *t: cases.run(case, *t), *inputs))


def test_like_torch():
    x, weight, bias, targets = cases.make(LinearCase(33, dtype=FP64, bias=True))
    logits = torch.nn.functional.linear(x, weight, bias)
    want = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=0.1)
    got = thunderkittens.linear_cross_entropy(x, weight, targets, bias=bias, label_smoothing=0.1)
    torch.testing.assert_close(got, want, rtol=1e-13, atol=0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("bias", [False, True])
def test_gradcheck(reduction, bias):
    case = LinearCase(7, hidden=4, leading=(2, 3), dtype=FP64, bias=bias)
    x, weight, bias, targets = cases.make(case)
    leaves = [t.requires_grad_() for t in (x, weight, bias) if t is not None]

    def call(*_):
        return thunderkittens.linear_cross_entropy(
            x, weight, targets, bias=bias, reduction=reduction, label_smoothing=0.1, z_loss=0.2
        )

    assert torch.autograd.gradcheck(call, leaves)


SUBSETS = list(itertools.product([False, True], repeat=3))


@pytest.mark.parametrize("needs", SUBSETS, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradients_that_are_wanted(needs, reduction):
    """Every subset of requires_grad gives the same numbers as all of them together."""
    case = LinearCase(9, bias=True, reduction=reduction)
    inputs = cases.make(case)
    full = cases.run(case, *inputs)[2:]
    leaves = [t.clone().requires_grad_(n) for t, n in zip(inputs[:3], needs, strict=True)]
    x, weight, bias = leaves
    targets = inputs[3]
    loss = thunderkittens.linear_cross_entropy(x, weight, targets, bias=bias, reduction=reduction)
    assert loss.requires_grad == any(needs)
    if any(needs):
        loss.sum().backward()
    for leaf, want, need in zip(leaves, full, needs, strict=True):
        assert (leaf.grad is not None) == need
        assert not need or torch.equal(leaf.grad, want)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_backward_twice_through_one_graph(reduction):
    x, weight, bias, targets = cases.make(LinearCase(9, bias=True))
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    loss = thunderkittens.linear_cross_entropy(x, weight, targets, bias=bias, reduction=reduction)
    dloss = torch.full_like(loss, 0.3)
    first = torch.autograd.grad(loss, leaves, dloss, retain_graph=True)
    second = torch.autograd.grad(loss, leaves, dloss)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_double_backward_raises(reduction):
    x, weight, _, targets = cases.make(LinearCase(9))
    x.requires_grad_()
    loss = thunderkittens.linear_cross_entropy(x, weight, targets, reduction=reduction)
    (dx,) = torch.autograd.grad(loss.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="cross_entropy: double backward is not support"):
        dx.sum().backward()


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 5), (3, 4, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_empty(shape, reduction):
    rows, hidden, width = shape
    x = torch.randn(rows, hidden, requires_grad=True)
    weight = torch.randn(width, hidden, requires_grad=True)
    targets = torch.full((rows,), -100)
    with memory.poisoned_outputs():
        loss = thunderkittens.linear_cross_entropy(x, weight, targets, reduction=reduction)
        loss.sum().backward()
    assert x.grad.shape == x.shape
    assert torch.equal(weight.grad, torch.zeros_like(weight))
    assert loss.shape == ((rows,) if reduction == "none" else ())
    undefined = reduction == "mean"  # of nothing
    assert bool(loss.isnan()) if undefined else bool(loss.isfinite().all())


def test_gradients_of_loss_that_are_not_finite():
    cases.check_gradients_of_loss_that_are_not_finite("cpu")


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_autocast(dtype):
    """As torch.linear, then cross_entropy: products in autocast's dtype."""
    x, weight, bias, targets = cases.make(LinearCase(9, bias=True))
    x.requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        loss = thunderkittens.linear_cross_entropy(x, weight, targets, bias=bias)
        mixed = thunderkittens.linear_cross_entropy(x.to(dtype), weight, targets, bias=bias)
    cast = [t.to(dtype) for t in (x, weight)]
    want = thunderkittens.linear_cross_entropy(*cast, targets, bias=bias.to(dtype))
    assert torch.equal(loss, want)
    assert torch.equal(mixed, want)
    loss.backward()
    assert (loss.dtype, x.grad.dtype) == (FP32, FP32)


def test_refused():
    x, weight, bias, targets = cases.make(LinearCase(9, bias=True))
    message = r"linear_cross_entropy: weight must have shape \[V, 24\] \(x.size\(-1\)\), got"
    with pytest.raises(ValueError, match=message):
        thunderkittens.linear_cross_entropy(x, weight.T, targets)
    message = r"linear_cross_entropy: bias must have shape \[9\] \(weight.size\(-2\)\), got \[8\]"
    with pytest.raises(ValueError, match=message):
        thunderkittens.linear_cross_entropy(x, weight, targets, bias=bias[:8])
    forward = torch.ops.thunderkittens.linear_cross_entropy_forward
    with pytest.raises(ValueError, match="chunk_rows must be an integer >= 1, got 0"):
        forward(x, weight, targets, None, [True] * 3, chunk_rows=0)
    with pytest.raises(ValueError, match="bias must be given when its gradient is needed"):
        forward(x, weight, targets, None, [True] * 3)


@pytest.mark.parametrize("case", cases.every(9)[::4], ids=str)
def test_opcheck(case):
    x, weight, bias, targets = cases.make(case)
    ops, options = torch.ops.thunderkittens, case.options
    leaves = [None if t is None else t.requires_grad_() for t in (x, weight, bias)]
    torch.library.opcheck(
        ops.linear_cross_entropy.default, (*leaves[:2], targets), options | {"bias": leaves[2]}
    )
    x, weight, bias = (None if t is None else t.detach() for t in leaves)
    needs = [True, False, bias is not None]
    torch.library.opcheck(
        ops.linear_cross_entropy_forward.default, (x, weight, targets, bias, needs), options
    )
    dloss = torch.randn(targets.shape)
    torch.library.opcheck(
        ops.linear_cross_entropy_backward.default, (x, dloss, dloss, weight, targets, bias, needs)
    )


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compile(dynamic, reduction):
    """No graph break, one graph for all shapes when dynamic, and the bits of eager."""

    def call(x, weight, targets):
        return thunderkittens.linear_cross_entropy(x, weight, targets, reduction=reduction)

    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (3, 5, 7):
        x, weight, _, targets = cases.make(LinearCase(9, leading=(rows,)))
        leaves, results = [x.requires_grad_(), weight.requires_grad_()], []
        for function in (compiled, call):
            loss = function(x, weight, targets)
            dloss = torch.full_like(loss, 0.7)
            results.append([loss.detach(), *torch.autograd.grad(loss, leaves, dloss)])
        for got, want in zip(*results, strict=True):
            assert memory.bits_equal(got, want)
