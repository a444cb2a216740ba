"""linear on the CPU, by torch: what it computes and refuses."""

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode

import thunderkittens
from tests.families.linear import cases
from tests.families.linear.cases import BF16, FP32, FP64, Case
from thunderkittens.testing import check_memory, memory

linear = thunderkittens.linear
OP = torch.ops.thunderkittens.linear.default

ALL = [
    *cases.every(),
    *cases.many(),
    *(
        Case((3, 2), 40, 20, d, True, True, a, norm)
        for d in (FP32, FP64)
        for a in (None, "swiglu")
        for norm in (None, 1e-3)
    ),
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check_case(case, inputs, cases.run_case(case, inputs))


def test_memory():
    """Inputs and guards stay as they were."""
    case = Case((2, 3), 24, 10, FP32, True, True, "swiglu", x_layout="odd")
    inputs = cases.make(case)
    cases.check_case(case, inputs, check_memory(lambda *t: cases.run_case(case, t), *inputs))


def test_is_a_linear_layer():
    layer = torch.nn.Linear(24, 10)
    x, residual = torch.randn(2, 3, 24), torch.randn(2, 3, 10)
    torch.testing.assert_close(linear(x, layer.weight, layer.bias), layer(x))
    got = linear(x, layer.weight, layer.bias, residual=residual)
    torch.testing.assert_close(got, layer(x) + residual)


def test_norm_is_rms_norms():
    x, weight, norm_weight = torch.randn(3, 24), torch.randn(10, 24), torch.randn(24)
    want = linear(torch.nn.functional.rms_norm(x, (24,), norm_weight, 0.1), weight)
    torch.testing.assert_close(linear(x, weight, norm=(norm_weight, 0.1)), want)


def test_swiglu_takes_gate_and_then_up():
    x, gate, up = torch.randn(3, 24), torch.randn(10, 24), torch.randn(10, 24)
    got = linear(x, torch.cat([gate, up]), activation="swiglu")
    torch.testing.assert_close(got, thunderkittens.swiglu(x @ gate.T, x @ up.T))


@pytest.mark.parametrize("activation", [None, "swiglu"])
def test_gradients(activation):
    """Of first and of second order, of all inputs: those of torch's own ops."""
    shapes = ((2, 3, 4), (6, 4), (6,), (2, 3, 6 if activation is None else 3))
    inputs = [torch.randn(s, dtype=FP64, requires_grad=True) for s in shapes]

    def call(x, weight, bias, residual):
        return linear(x, weight, bias, residual=residual, activation=activation)

    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


@pytest.mark.parametrize(
    ("x", "weight"), [((0, 8), (4, 8)), ((3, 0), (4, 0)), ((3, 8), (0, 8)), ((8,), (4, 8))], ids=str
)
def test_empty_and_single_rows(x, weight):
    x, weight = torch.randn(x), torch.randn(weight)
    bias, residual = torch.randn(weight.shape[0]), torch.randn(*x.shape[:-1], weight.shape[0])
    want = torch.nn.functional.linear(x, weight, bias) + residual
    torch.testing.assert_close(linear(x, weight, bias, residual=residual), want)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"weight": torch.ones(6, 9)}, ValueError, r"weight must have shape \[O, 8\]"),
        ({"bias": torch.ones(5)}, ValueError, r"bias must have shape \[6\]"),
        ({"residual": torch.ones(2, 5)}, ValueError, r"residual.size\(-1\) must be 6, as y's, got"),
        ({"residual": torch.ones(3, 6)}, ValueError, "residual must have shape"),
        ({"residual": torch.ones(2, 6).double()}, TypeError, "residual must have dtype float32"),
        ({"norm": (torch.ones(7), 0.1)}, ValueError, r"norm_weight must have shape \[8\]"),
        ({"norm": (torch.ones(8), -1.0)}, ValueError, "norm_eps must be"),
        ({"norm": (torch.ones(8).double(), 0.1)}, TypeError, "norm_weight must have dtype float32"),
        (
            {"norm": torch.ones(8)},
            TypeError,
            r"norm must be a tuple \(weight, eps\) or None, got T",
        ),
        ({"norm": (torch.ones(8),)}, TypeError, "or None, got one of 1"),
        ({"activation": "gelu"}, ValueError, 'must be "swiglu" or "none", got "gelu"'),
        (
            {"weight": torch.ones(5, 8), "activation": "swiglu"},
            ValueError,
            r"weight.size\(0\) must be even for swiglu",
        ),
    ],
)
def test_refused_calls(change, error, message):
    given = {"x": torch.ones(2, 8), "weight": torch.ones(6, 8)} | change
    with pytest.raises(error, match=f"linear: .*{message}|linear: {message}"):
        linear(**given)


def test_autocast_takes_its_dtype():
    x, weight, residual = torch.randn(2, 8), torch.randn(6, 8), torch.randn(2, 6)
    with torch.autocast("cpu", BF16):
        y = linear(x, weight, residual=residual)
    assert y.dtype == BF16
    want = linear(x.to(BF16), weight.to(BF16), residual=residual.to(BF16))
    assert memory.bits_equal(y, want)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("gradient", [False, True])
def test_compile(dynamic, gradient):
    """No graph break, and the values of eager."""
    torch._dynamo.reset()
    compiled = torch.compile(linear, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    weight = torch.randn(12, 24, requires_grad=gradient)
    for rows in (3, 5):
        x, residual = torch.randn(rows, 24), torch.randn(rows, 6)
        options = {"residual": residual, "activation": "swiglu"}
        y, want = (f(x, weight, **options) for f in (compiled, linear))
        torch.testing.assert_close(y, want)
        if gradient:
            grads = (torch.autograd.grad(t.sum(), weight)[0] for t in (y, want))
            torch.testing.assert_close(*grads)


class Calls(TorchDispatchMode):
    """Notes whether the calls of linear carry the promise, below autograd and autocast."""

    def __init__(self):
        super().__init__()
        self.promised = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is OP:
            given = dict(zip((a.name for a in OP._schema.arguments), args, strict=False))
            self.promised.append(given.get("weight_is_constant", False))
        return func(*args, **(kwargs or {}))


def test_a_constant_weight_changes_nothing_by_torch():
    x, weight = torch.randn(2, 8), torch.randn(6, 8, requires_grad=True)
    want = linear(x, weight)
    got = linear(x, weight, weight_is_constant=True)
    assert memory.bits_equal(got, want)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), weight)[0] for y in (got, want)))


def test_the_promise_is_passed_on():
    x, weight = torch.randn(2, 8), torch.randn(6, 8)
    with Calls() as calls:
        linear(x, weight)
        linear(x, weight, weight_is_constant=True)
        torch.func.vmap(lambda t: linear(t, weight, weight_is_constant=True))(torch.randn(3, 2, 8))
    assert calls.promised == [False, True, True]


def test_a_weight_that_autocast_casts_is_not_constant():
    """The kernel in front writes it."""
    x, weight = torch.randn(2, 8), torch.randn(6, 8)
    with Calls() as calls, torch.autocast("cpu", BF16):
        linear(x, weight, weight_is_constant=True)
        linear(x, weight.to(BF16), weight_is_constant=True)
    assert calls.promised == [False, True]


def test_the_promise_is_in_a_compiled_graph():
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, weight: linear(x, weight, weight_is_constant=True),
        fullgraph=True,
        backend=aot_autograd(fw_compiler=keep),
    )
    with torch.no_grad():
        compiled(torch.randn(2, 8), torch.randn(6, 8))
    (graph,) = graphs
    (call,) = (node for node in graph.graph.nodes if node.target is OP)
    assert call.args[7:] == (True,)


def test_vmap():
    x, weight = torch.randn(3, 2, 8), torch.randn(3, 6, 8)
    want = torch.stack([linear(each, weight[0]) for each in x])
    torch.testing.assert_close(torch.func.vmap(lambda t: linear(t, weight[0]))(x), want)
    want = torch.stack([linear(each, w) for each, w in zip(x, weight, strict=True)])
    torch.testing.assert_close(torch.func.vmap(linear)(x, weight), want)


def test_opcheck():
    x, weight, residual = torch.randn(2, 3, 8), torch.randn(6, 8), torch.randn(2, 3, 3)
    op = torch.ops.thunderkittens.linear.default
    torch.library.opcheck(op, (x, weight))
    torch.library.opcheck(op, (x, weight, weight[:, 0].clone(), residual, "swiglu"))
    torch.library.opcheck(op, (x.clone().requires_grad_(), weight))
    torch.library.opcheck(op, (x, weight, None, None, "none", None, 1e-6, True))
