"""mlp on the CPU (ATen backend), and what holds on every backend alike."""

import pytest
import torch
from torch import nn

import thunderkittens
from tests.families.mlp import cases
from tests.families.mlp.cases import BF16, FP16, FP32, FP64, Case
from thunderkittens.testing import check_memory, memory

op = thunderkittens.mlp


@pytest.mark.parametrize("case", cases.every((FP32, FP16, BF16, FP64)), ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check_case(case, inputs, cases.run_case(case, inputs))


@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_memory(layout):
    """Inputs and guards stay as they were, and nothing outside the tensors shows in the results."""
    case = Case((2, 3, 5), 12, 20, 9, FP32, layout=layout)
    inputs = cases.make(case)
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gradcheck(approximate, transposed):
    case = Case((2, 3), 4, 5, 6, FP64, approximate, transposed=transposed)
    *given, _ = cases.make(case)
    leaves = [t.requires_grad_() for t in given]
    assert torch.autograd.gradcheck(lambda *t: op(*t, approximate=approximate), leaves)


@pytest.mark.parametrize("wanted", range(5))
def test_only_what_is_needed_is_computed(wanted):
    """Each gradient alone is the one among all."""
    case = Case((7,), 8, 16, 8, FP32, "tanh")
    *given, dy = cases.make(case)
    leaves = [t.detach().requires_grad_(i == wanted) for i, t in enumerate(given)]
    (got,) = torch.autograd.grad(op(*leaves, approximate="tanh"), leaves[wanted], dy)
    assert memory.bits_equal(got, cases.run_case(case, (*given, dy))[1 + wanted])


@pytest.mark.parametrize(
    "sizes", [((0,), 8, 8, 8), ((2, 0), 8, 16, 8), ((3,), 0, 8, 8), ((3,), 8, 0, 8)], ids=str
)
def test_empty(sizes):
    """Without rows, or without terms, where y is the bias behind gelu of the one in front."""
    case = Case(*sizes, FP32)
    *given, dy = cases.make(case)
    leaves = [t.requires_grad_() for t in given]
    y = op(*leaves)
    y.backward(dy)
    hidden = nn.functional.linear(leaves[0], leaves[1], leaves[2])
    want = nn.functional.linear(nn.functional.gelu(hidden), leaves[3], leaves[4])
    torch.testing.assert_close(y, want)
    for leaf, wanted in zip(leaves, torch.autograd.grad(want, leaves, dy), strict=True):
        torch.testing.assert_close(leaf.grad, wanted)


def test_a_vector_is_a_row():
    *given, dy = cases.make(Case((1,), 8, 16, 24, FP32))
    want = cases.run_case(Case((1,), 8, 16, 24, FP32), (*given, dy))
    got = cases.run_case(Case((), 8, 16, 24, FP32), (given[0][0], *given[1:], dy[0]))
    for one, row in zip(got, want, strict=True):
        torch.testing.assert_close(one, row.view(one.shape))


def test_double_backward_raises():
    *given, _ = cases.make(Case((3,), 8, 8, 8, FP32))
    leaves = [t.requires_grad_() for t in given]
    (dx,) = torch.autograd.grad(op(*leaves).sum(), leaves[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="mlp: double backward is not supported"):
        dx.sum().backward()


def test_shapes_that_do_not_fit():
    x, w1, b1, w2, b2, _ = cases.make(Case((3,), 8, 16, 24, FP32))
    with pytest.raises(ValueError, match=r"mlp: fc2_weight must have shape \[N, 16\]"):
        op(x, w1, b1, w2.t(), b2)
    with pytest.raises(ValueError, match=r"mlp: fc1_bias must have shape \[16\]"):
        op(x, w1, b2, w2, b2)
    with pytest.raises(TypeError, match="mlp: fc2_bias"):
        op(x, w1, b1, w2, b2.double())
    with pytest.raises(ValueError, match="mlp: approximate"):
        op(x, w1, b1, w2, b2, approximate="sigmoid")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [BF16, FP64])
def test_opcheck(dtype, transposed):
    *given, dy = cases.make(Case((2, 3), 8, 16, 24, dtype, transposed=transposed))
    ops = torch.ops.thunderkittens
    leaves = [t.detach().requires_grad_() for t in given]
    torch.library.opcheck(ops.mlp.default, leaves, {"approximate": "tanh"})
    _, hidden, activated = ops.mlp_forward(*given, approximate="tanh")
    given = (dy, *given, hidden, activated, [True, True, False, True, False])
    torch.library.opcheck(ops.mlp_backward.default, given, {"approximate": "tanh"})


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic):
    """No graph break, and the bits of eager."""
    torch._dynamo.reset()
    compiled = torch.compile(op, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (3, 5, 7):
        case = Case((rows,), 8, 16, 24, FP32, transposed=True)
        *given, dy = cases.make(case)
        leaves = [t.detach().requires_grad_() for t in given]
        y = compiled(*leaves)
        results = [y.detach(), *torch.autograd.grad(y, leaves, dy)]
        for got, want in zip(results, cases.run_case(case, (*given, dy)), strict=True):
            assert memory.bits_equal(got, want)


def test_gradients_of_transposed_weights_are_not_copied():
    """A leaf [in, out], given by t(): its gradient has its strides, and is stored as it comes."""
    weight = torch.randn(8, 16, requires_grad=True)
    *given, dy = cases.make(Case((5,), 8, 16, 8, FP32))
    op(given[0], weight.t(), *given[2:]).backward(dy)
    assert weight.grad.is_contiguous()


def test_nothing_is_copied_for_torch():
    """Of tensors that a kernel could not read where they lie, in a call that none computes."""
    *given, dy = cases.make(Case((4, 3), 8, 16, 8, BF16, layout="offset"))
    leaves = [t.detach().requires_grad_() for t in given]
    with torch.profiler.profile() as profile:
        op(*leaves).backward(dy)
        thunderkittens.explain("mlp", *given)
    names = {event.key for event in profile.key_averages()}
    assert "aten::linear" in names and "aten::clone" not in names


# ---- The module ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_module(approximate, bias):
    module = thunderkittens.nn.MLP(8, 24, approximate, bias=bias)
    x = torch.randn(2, 3, 8)
    hidden = nn.functional.gelu(module.fc1(x), approximate=approximate)
    torch.testing.assert_close(module(x), module.fc2(hidden))
    module(x).sum().backward()
    assert all(p.grad is not None for p in module.parameters())
    names = {name for name, _ in module.named_parameters()}
    kinds = ("weight", "bias") if bias else ("weight",)
    assert names == {f"{layer}.{kind}" for layer in ("fc1", "fc2") for kind in kinds}


def test_module_compiles_and_says_what_it_is():
    module = thunderkittens.nn.MLP(8, 24, out_features=16, dtype=BF16)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 8, dtype=BF16)
    assert torch.equal(compiled(x), module(x))
    assert module(x).shape == (3, 16)
    assert "approximate='none'" in repr(module)
    with pytest.raises(ValueError, match='^MLP: approximate must be "none" or "tanh", got'):
        thunderkittens.nn.MLP(8, 24, "relu")
    with pytest.raises(ValueError, match="^MLP: hidden_features must be >= 0, got -1$"):
        thunderkittens.nn.MLP(8, -1)


def test_module_under_autocast():
    module = thunderkittens.nn.MLP(8, 24)
    with torch.autocast("cpu", BF16):
        y = module(torch.randn(3, 8))
    assert y.dtype == BF16
    y.sum().backward()
    assert all(p.grad.dtype == FP32 for p in module.parameters())
