"""cross_entropy on the CPU (ATen backend), and what holds on every backend alike."""

import math
from functools import partial

import pytest
import torch

import thunderkittens
from tests.families.cross_entropy import cases
from tests.families.cross_entropy import far_cases as far
from tests.families.cross_entropy.cases import BF16, FP16, FP32, FP64, Case
from thunderkittens.testing import check_memory, memory, tolerance

ALL = [
    *cases.widths((*cases.WIDTHS, 50257), (FP32, FP16, BF16, FP64)),
    *cases.options(129),
    *cases.layouts(33),
    *cases.regimes(64),
    Case(768, (65,)),
    Case(5, (), ignored=0),
    Case(5, (2, 1, 3), BF16),
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check(case, inputs, cases.run(case, *inputs))


@pytest.mark.parametrize("case", [*cases.layouts(9), *cases.options(9)], ids=str)
def test_memory(case):
    """Inputs and guards stay as they were, and nothing outside the tensors shows in the results."""
    inputs = cases.make(case)
    cases.check(case, inputs, check_memory(lambda *t: cases.run(case, *t), *inputs))


@pytest.mark.parametrize(
    "check",
    (
        partial(cases.check_rows_that_are_undefined, outside=False),
        cases.check_targets_without_probability,
        cases.check_no_targets,
        cases.check_gradients_of_loss_that_are_not_finite,
    ),
)
def test_numbers_at_the_edge(check):
    check("cpu")


@pytest.mark.parametrize("width", [1, 300, 2000])
def test_far_logits(width):
    """Without smoothing: torch's sum of the logits' distances from the largest may be infinite."""
    far.check_all("cpu", width, options=({}, {"z_loss": 1e-3}))


@pytest.mark.parametrize("offset", [1e5, -1e5, 2.0**17])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}], ids=str)
def test_far_from_zero(offset, options):
    """As exact as near zero: an offset that float32 holds changes no digit of what is computed."""
    width = 300
    x = offset + torch.randint(-1024, 1024, (6, width)).to(FP32) / 128
    targets = torch.randint(0, width, (6,))
    assert torch.equal(x.double() - offset, (x - offset).double())
    loss, gradient = cases.losses(x, targets, **options)
    near_loss, near_gradient = cases.losses(x - offset, targets, **options)
    wide_loss, wide_gradient = cases.losses(x.double(), targets, **options)
    assert torch.equal(gradient, near_gradient)
    assert torch.equal(loss, near_loss)
    # Each exponential is of x − lse, up to 16: 8 roundings of 16, and of a sum of `width`.
    bound = tolerance.accumulation(width, FP32) + 16 * 8 * tolerance.unit(FP32)
    assert bool(((gradient - wide_gradient).abs() <= bound * (wide_gradient.abs() + 1e-2)).all())
    assert bool(((loss - wide_loss).abs() <= bound * (1 + wide_loss.abs())).all())


OUTSIDE = [
    ((7,), torch.int64, 7),
    ((7,), torch.int64, -1),
    ((2, 3, 7), torch.int64, 2**40),
    ((7,), torch.int32, -(2**31)),
    ((3, 0), torch.int64, 0),
]


@pytest.mark.parametrize(("shape", "dtype", "bad"), OUTSIDE, ids=str)
@pytest.mark.parametrize("logits", [FP32, BF16, FP64])
def test_targets_outside_raise(shape, dtype, bad, logits):
    """An IndexError as torch's, before anything is written; not where they are ignored."""
    x = torch.randn(shape, dtype=logits, requires_grad=True)
    targets = torch.zeros(shape[:-1], dtype=dtype)
    targets.view(-1)[-1] = bad
    with pytest.raises(IndexError):
        torch.nn.functional.cross_entropy(x.flatten(0, -2), targets.flatten().long())
    said = rf"< {shape[-1]} \({{}}\) or -100 \(ignore_index\), got {bad}$"
    message = "^cross_entropy: targets must be >= 0 and " + said.format(r"logits.size\(-1\)")
    for reduction in ("mean", "none"):
        with pytest.raises(IndexError, match=message):
            thunderkittens.cross_entropy(x, targets, reduction=reduction)
    kept = x.detach().clone()
    with pytest.raises(IndexError, match=message):
        torch.ops.thunderkittens.cross_entropy_forward_(kept, targets)
    assert torch.equal(kept, x)
    ignoring = thunderkittens.cross_entropy(x, targets, ignore_index=bad, reduction="sum")
    assert ignoring.isfinite()

    hidden = torch.randn(*shape[:-1], 4, dtype=logits, requires_grad=True)
    weight = torch.randn(shape[-1], 4, dtype=logits)
    message = "^linear_cross_entropy: targets .* " + said.format(r"weight.size\(-2\)")
    for reduction in ("mean", "none"):
        with pytest.raises(IndexError, match=message):
            thunderkittens.linear_cross_entropy(hidden, weight, targets, reduction=reduction)


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2}, {"reduction": "none"}], ids=str)
def test_like_torch(options):
    """torch's formula of smoothing, and its mean over what is not ignored."""
    x, targets = torch.randn(6, 9, dtype=FP64), torch.tensor([0, 8, 2, 2, 5, 1])
    want = torch.nn.functional.cross_entropy(x, targets, ignore_index=2, **options)
    got = thunderkittens.cross_entropy(x, targets, ignore_index=2, **options)
    torch.testing.assert_close(got, want, rtol=1e-13, atol=0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("inplace", [False, True])
def test_gradcheck(reduction, inplace):
    x = torch.randn(2, 3, 7, dtype=FP64, requires_grad=True)
    targets = torch.tensor([[0, 6, -100], [3, 3, 1]])

    def call(x):
        return thunderkittens.cross_entropy(
            1.5 * x, targets, reduction=reduction, label_smoothing=0.1, z_loss=0.2, inplace=inplace
        )

    assert torch.autograd.gradcheck(call, x)


# ---- The gradient that is saved ------------------------------------------------------------------


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dloss", [1.0, 2.0, -0.3])
def test_backward_twice_through_one_graph(inplace, dloss):
    """What the first backward multiplies is there, as it was, for the second."""
    leaf = torch.randn(4, 40, requires_grad=True)
    targets = torch.tensor([3, 39, -100, 0])
    loss = thunderkittens.cross_entropy(2 * leaf, targets, inplace=inplace)
    factor = torch.tensor(dloss)
    first = torch.autograd.grad(loss, leaf, factor, retain_graph=True)[0]
    again = torch.autograd.grad(loss, leaf, factor, retain_graph=True)[0]
    last = torch.autograd.grad(loss, leaf, factor)[0]
    assert torch.equal(first, again)
    assert torch.equal(first, last)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradients_are_not_each_other():
    """Two backwards through a kept graph add up in a leaf's .grad."""
    x = torch.randn(4, 40, requires_grad=True)
    loss = thunderkittens.cross_entropy(x, torch.tensor([3, 39, -100, 0]))
    loss.backward(retain_graph=True)
    first = x.grad.clone()
    x.grad.mul_(3)
    loss.backward()
    assert torch.equal(x.grad, 4 * first)


def test_in_place_takes_the_logits():
    x = torch.randn(4, 40, requires_grad=True)
    targets = torch.tensor([3, 39, -100, 0])
    logits = 2 * x
    want = torch.autograd.grad(thunderkittens.cross_entropy(logits, targets), logits)[0]
    thunderkittens.cross_entropy(logits, targets, inplace=True)
    assert torch.equal(logits, want)


def test_in_place_without_a_gradient_changes_nothing():
    logits = torch.randn(4, 40)
    before = logits.clone()
    targets = torch.tensor([3, 39, -100, 0])
    want = thunderkittens.cross_entropy(logits, targets)
    assert torch.equal(thunderkittens.cross_entropy(logits, targets, inplace=True), want)
    with torch.no_grad():
        thunderkittens.cross_entropy(logits.requires_grad_(), targets, inplace=True)
    assert torch.equal(logits, before)


def test_in_place_raises_where_logits_are_needed():
    """By the op that made them, by one that used them, and after the user wrote over them."""
    targets = torch.tensor([3, 39, -100, 0])
    message = "modified by an inplace operation"
    x = torch.randn(4, 40, requires_grad=True)
    with pytest.raises(RuntimeError, match=message):  # tanh saves its result
        thunderkittens.cross_entropy(x.tanh(), targets, inplace=True).backward()
    logits = 2 * x
    square = logits.square().sum()
    loss = thunderkittens.cross_entropy(logits, targets, inplace=True)
    with pytest.raises(RuntimeError, match=message):
        (loss + square).backward()
    logits = 2 * x
    loss = thunderkittens.cross_entropy(logits, targets, inplace=True)
    with torch.no_grad():
        logits.zero_()
    with pytest.raises(RuntimeError, match=message):
        loss.backward()


def test_in_place_is_refused():
    targets = torch.zeros(4, dtype=torch.int64)
    leaf = torch.randn(4, 40, requires_grad=True)
    for logits in (leaf, leaf.view(4, 40), leaf[:, :20]):
        with pytest.raises(ValueError, match="cross_entropy: logits must be computed .*a leaf"):
            thunderkittens.cross_entropy(logits, targets, inplace=True)
    wide = 2 * leaf
    for logits in (wide[:, ::2], wide.t()[:4], wide[:1].expand(4, 40)):
        with pytest.raises(ValueError, match="cross_entropy: logits must be contiguous rows one"):
            thunderkittens.cross_entropy(logits, targets, inplace=True)


@pytest.mark.parametrize("inplace", [False, True])
def test_double_backward_raises(inplace):
    x = torch.randn(3, 8, requires_grad=True)
    loss = thunderkittens.cross_entropy(2 * x, torch.tensor([1, 2, 3]), inplace=inplace)
    (dx,) = torch.autograd.grad(loss, x, create_graph=True)
    message = "cross_entropy: double backward is not supported"
    with pytest.raises(NotImplementedError, match=message):
        dx.sum().backward()


def test_forward_mode_raises():
    x, targets = torch.randn(3, 8), torch.tensor([1, 2, 3])
    message = "cross_entropy: forward-mode differentiation is not supported"
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(NotImplementedError, match=message):
            thunderkittens.cross_entropy(dual, targets)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0, 0), (2, 0, 8), (0,)], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_empty(shape, reduction):
    """No rows: a mean of nothing; rows without columns: they can only be ignored."""
    x = torch.randn(shape, requires_grad=True)
    targets = torch.full(shape[:-1], -100)
    with memory.poisoned_outputs():
        loss = thunderkittens.cross_entropy(x, targets, reduction=reduction)
        loss.sum().backward()
    assert x.grad.shape == x.shape
    assert loss.shape == (shape[:-1] if reduction == "none" else ())
    assert bool(loss.isnan()) if reduction == "mean" else loss.sum() == 0
    thunderkittens.cross_entropy(torch.ones(2, 4), torch.tensor([0, 1]))  # the next call is fine


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_autocast_casts_nothing(dtype):
    x = torch.randn(3, 16, requires_grad=True)
    targets = torch.tensor([1, 2, 3])
    with torch.autocast("cpu", dtype=dtype):
        loss = thunderkittens.cross_entropy(x, targets)
    loss.backward()
    assert loss.dtype == x.grad.dtype == FP32


def test_bad_options():
    x, targets = torch.randn(2, 4), torch.tensor([0, 1])
    for op in (
        lambda **o: thunderkittens.cross_entropy(x, targets, **o),
        lambda **o: thunderkittens.linear_cross_entropy(x, torch.ones(5, 4), targets, **o),
    ):
        with pytest.raises(ValueError, match='cross_entropy: reduction must be "mean", .* "men"'):
            op(reduction="men")
        with pytest.raises(
            ValueError,
            match="cross_entropy: label_smoothing must be finite and >= 0 and <= 1, got 1.5",
        ):
            op(label_smoothing=1.5)


# ---- torch.library.opcheck and torch.compile -----------------------------------------------------

CHECKED = [
    Case(8),
    Case(7, (2, 3), BF16, reduction="none"),
    Case(9, (2, 3), FP16, label_smoothing=0.1, z_loss=0.1),
    Case(16, (4,), FP64, reduction="sum"),
    Case(1, (1,)),
    *(Case(10, (2, 3), layout=layout) for layout in cases.LAYOUTS[1:5]),
]


@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_opcheck(case):
    logits, targets = cases.make(case)
    op = torch.ops.thunderkittens.cross_entropy.default
    torch.library.opcheck(op, (logits.requires_grad_(), targets), case.options)


@pytest.mark.parametrize("case", CHECKED[:5], ids=str)
def test_opcheck_of_the_inner_ops(case):
    logits, targets = cases.make(case)
    ops = torch.ops.thunderkittens
    torch.library.opcheck(ops.cross_entropy_.default, (logits, targets), case.options)
    torch.library.opcheck(ops.cross_entropy_forward.default, (logits, targets), case.options)
    torch.library.opcheck(ops.cross_entropy_forward_.default, (logits, targets), case.options)
    dloss = torch.randn(targets.shape, dtype=FP64 if case.dtype == FP64 else FP32)
    torch.library.opcheck(ops.cross_entropy_backward.default, (logits, dloss, dloss))
    torch.library.opcheck(ops.cross_entropy_backward_.default, (logits, dloss))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
def test_compile(dynamic, inplace):
    """No graph break, one graph for all shapes when dynamic, and the bits of eager."""

    def call(x, targets):
        return thunderkittens.cross_entropy(2 * x, targets, z_loss=0.1, inplace=inplace)

    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (3, 5, 7):
        leaf, targets = torch.randn(rows, 24, requires_grad=True), torch.arange(rows)
        results = []
        for function in (compiled, call):
            loss = function(leaf, targets)
            results.append([loss.detach(), *torch.autograd.grad(loss, leaf, torch.tensor(0.7))])
        for got, want in zip(*results, strict=True):
            assert memory.bits_equal(got, want)


@pytest.mark.parametrize("inplace", [False, True])
def test_compile_with_inductor(inplace):
    def call(x, targets):
        return thunderkittens.cross_entropy(x * x, targets, inplace=inplace)

    compiled = torch.compile(call, fullgraph=True)
    x, targets = torch.randn(3, 24, requires_grad=True), torch.tensor([5, -100, 0])
    loss, want = compiled(x, targets), call(x, targets)
    assert torch.equal(loss, want)
    assert torch.equal(*(torch.autograd.grad(result, x)[0] for result in (loss, want)))


def test_export():
    class Model(torch.nn.Module):
        def forward(self, x, targets):
            return thunderkittens.cross_entropy(x, targets)

    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = ({0: rows}, {0: rows})
    inputs = torch.randn(4, 8), torch.tensor([0, 1, 2, 3])
    exported = torch.export.export(Model(), inputs, dynamic_shapes=shapes)
    x, targets = torch.randn(9, 8), torch.zeros(9, dtype=torch.int64)
    assert torch.equal(exported.module()(x, targets), thunderkittens.cross_entropy(x, targets))


def test_checkpoint():
    x, targets = torch.randn(3, 8, requires_grad=True), torch.tensor([1, 2, 3])

    def call(x):
        return thunderkittens.cross_entropy(2 * x, targets, inplace=True)

    direct = call(x)
    again = torch.utils.checkpoint.checkpoint(call, x, use_reentrant=False)
    assert torch.equal(direct, again)
    first = torch.autograd.grad(direct * math.pi, x)[0]
    assert torch.equal(first, torch.autograd.grad(again * math.pi, x)[0])
