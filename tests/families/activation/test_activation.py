"""swiglu, geglu and gelu on the CPU (ATen backend), and what holds on every backend alike."""

import pytest
import torch

import thunderkittens
from tests.families.activation import cases
from tests.families.activation.cases import BF16, FP16, FP32, FP64, OPS, Case
from thunderkittens.testing import check_memory, memory

ALL = [
    *cases.sizes((1, 7, 64, 1025), (FP32, FP16, BF16, FP64)),
    *cases.of_each_op(33, (2, 1, 3), (FP32, BF16, FP64)),
    *cases.layouts(33),
    *cases.regimes(64, (FP32, FP16, BF16, FP64)),
]
EACH = [Case(op, 8, approximate=approximate) for op, approximate in OPS]


def by_torch(case: Case) -> dict:
    """Of `tolerance.gated`: what torch computes in, and that its formulas cancel."""
    return {"dtype": FP64 if case.dtype == FP64 else FP32, "cancels": True}


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check_case(case, inputs, cases.run_case(case, inputs), **by_torch(case))


@pytest.mark.parametrize("case", cases.layouts(9), ids=str)
def test_memory(case):
    """Inputs and guards stay as they were, and nothing outside the tensors shows in the results."""
    inputs = cases.make(case)
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    cases.check_case(case, inputs, results, **by_torch(case))


def test_edges():
    cases.check_edges("cpu", by_torch=True)


@pytest.mark.parametrize("case", EACH, ids=str)
def test_nan_stays_where_it_is(case):
    inputs = cases.make(case)
    clean = cases.run_case(case, inputs)
    inputs[0][1, 5] = float("nan")
    for got, want in zip(cases.run_case(case, inputs), clean, strict=True):
        assert got[1, 5].isnan()
        assert torch.equal(got[::2], want[::2])


@pytest.mark.parametrize("case", EACH, ids=str)
def test_like_torch(case):
    x, up, _ = (torch.randn(3, 8) for _ in range(3))
    inputs = [x] if case.op == "gelu" else [x, up]
    if case.op == "swiglu":
        f = torch.nn.functional.silu(x)
    else:
        f = torch.nn.functional.gelu(x, approximate=case.approximate)
    torch.testing.assert_close(cases.call(case, inputs), f if case.op == "gelu" else f * up)


@pytest.mark.parametrize("case", EACH, ids=str)
@pytest.mark.parametrize("shape", [(3, 2, 7), (5,), ()], ids=str)
def test_gradcheck(case, shape):
    count = 1 if case.op == "gelu" else 2
    leaves = [torch.randn(shape, dtype=FP64, requires_grad=True) for _ in range(count)]
    assert torch.autograd.gradcheck(lambda *t: cases.call(case, t), leaves)


@pytest.mark.parametrize("needs", [(True, False), (False, True), (False, False)], ids=str)
@pytest.mark.parametrize("op", ["swiglu", "geglu"])
def test_gradients_that_are_wanted(op, needs):
    case = Case(op, 40)
    gate, up, dy = cases.make(case)
    full = cases.run_case(case, (gate, up, dy))[1:]
    leaves = [t.clone().requires_grad_(n) for t, n in zip((gate, up), needs, strict=True)]
    y = cases.call(case, leaves)
    assert y.requires_grad == any(needs)
    if any(needs):
        y.backward(dy)
    for leaf, want, need in zip(leaves, full, needs, strict=True):
        assert (leaf.grad is not None) == need
        assert not need or torch.equal(leaf.grad, want)
    backward = getattr(torch.ops.thunderkittens, f"{op}_backward")
    assert [g.numel() > 0 for g in backward(dy, gate, up, needs)] == list(needs)


def test_one_tensor_as_gate_and_up():
    x = torch.randn(3, 8, dtype=FP64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: thunderkittens.swiglu(x, x), [x])


@pytest.mark.parametrize("case", EACH, ids=str)
def test_double_backward_raises(case):
    *inputs, _ = cases.make(case)
    leaves = [t.requires_grad_() for t in inputs]
    first = torch.autograd.grad(cases.call(case, leaves).sum(), leaves[0], create_graph=True)[0]
    message = f"{case.op}: double backward is not supported"
    with pytest.raises(NotImplementedError, match=message):
        first.sum().backward()


@pytest.mark.parametrize("case", EACH, ids=str)
def test_forward_mode_raises(case):
    """Silently dropping the tangent would be a wrong answer."""
    *inputs, _ = cases.make(case)
    message = f"{case.op}: forward-mode differentiation is not supported"
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(inputs[0], torch.ones_like(inputs[0]))
        with pytest.raises(NotImplementedError, match=message):
            cases.call(case, [dual, *inputs[1:]])


@pytest.mark.parametrize("shape", [(0,), (0, 8), (3, 0), (2, 0, 8)], ids=str)
@pytest.mark.parametrize("case", EACH, ids=str)
def test_empty(case, shape):
    count = 1 if case.op == "gelu" else 2
    leaves = [torch.randn(shape, requires_grad=True) for _ in range(count)]
    y = cases.call(case, leaves)
    y.sum().backward()
    assert y.shape == shape
    assert all(leaf.grad.shape == shape for leaf in leaves)


@pytest.mark.parametrize("op", ["geglu", "gelu"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_approximate_is_one_of_torchs_names(op, device):
    x = torch.ones(2, 8, device=device)
    message = f'^{op}: approximate must be "tanh" or "none", got "erf"'
    for leaf in (x, x.clone().requires_grad_()):
        with pytest.raises(ValueError, match=message):
            cases.call(Case(op, 8, approximate="erf"), [leaf] if op == "gelu" else [leaf, x])


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_autocast_casts_nothing(dtype):
    x = torch.randn(3, 16, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        assert thunderkittens.gelu(x).dtype == FP32
        assert thunderkittens.swiglu(x.to(dtype), x.to(dtype)).dtype == dtype


# ---- torch.library.opcheck and torch.compile -----------------------------------------------------

CHECKED = [
    *cases.of_each_op(7, (2, 3), (BF16, FP64)),
    *(Case("swiglu", 10, (2, 3), layout=layout) for layout in cases.LAYOUTS[1:6]),
    Case("gelu", 1, (1, 1)),
]


@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_opcheck(case):
    *inputs, dy = cases.make(case)
    ops = torch.ops.thunderkittens
    options = {} if case.op == "swiglu" else {"approximate": case.approximate}
    leaves = tuple(t.requires_grad_() for t in inputs)
    torch.library.opcheck(getattr(ops, case.op).default, leaves, options)
    inputs = [t.detach() for t in inputs]
    backward = getattr(ops, f"{case.op}_backward").default
    for needs in ([True, True], [False, True]):
        arguments = (dy, *inputs) if case.op == "gelu" else (dy, *inputs, needs)
        torch.library.opcheck(backward, arguments, options)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", EACH, ids=str)
def test_compile(case, dynamic):
    """No graph break, one graph for all shapes when dynamic, and the bits of eager."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *t: cases.call(case, t), fullgraph=True, dynamic=dynamic, backend="aot_eager"
    )
    for leading in [(3,), (5,), (7,)]:
        *inputs, dy = cases.make(Case(case.op, 24, leading, approximate=case.approximate))
        leaves = [t.clone().requires_grad_() for t in inputs]
        y = compiled(*leaves)
        results = [y.detach(), *torch.autograd.grad(y, leaves, dy)]
        for got, want in zip(results, cases.run_case(case, (*inputs, dy)), strict=True):
            assert memory.bits_equal(got, want)


def test_compile_with_inductor():
    compiled = torch.compile(
        lambda x: thunderkittens.swiglu(*x.chunk(2, dim=-1)), fullgraph=True, dynamic=True
    )
    x = torch.randn(2, 3, 24)
    assert torch.equal(compiled(x), thunderkittens.swiglu(*x.chunk(2, dim=-1)))


def test_checkpoint():
    x = torch.randn(3, 4, 8, requires_grad=True)
    direct = thunderkittens.gelu(x)
    again = torch.utils.checkpoint.checkpoint(thunderkittens.gelu, x, use_reentrant=False)
    assert torch.equal(direct, again)
    first = torch.autograd.grad(direct.square().sum(), x)[0]
    assert torch.equal(first, torch.autograd.grad(again.square().sum(), x)[0])
