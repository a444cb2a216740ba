"""mamba2 on the CPU (ATen backend), and what holds on every backend alike."""

import math

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import thunderkittens
from tests.families.mamba2 import cases
from tests.families.mamba2.cases import BF16, FP16, FP32, FP64, Case
from tests.families.mamba2.leaves import call, leaves_of
from thunderkittens.testing import check_memory

ALL = [
    *cases.lengths(dtype=FP64),
    *cases.lengths(chunks=(1,), dtype=FP32),
    *cases.widths((FP32,)),
    *cases.options(FP64),
    *cases.options(FP32),
    *cases.layouts(),
    *cases.packed(FP64),
    *cases.packed(FP32),
    Case(head_width=7, state_width=256, length=66),
    Case(dtype=FP16, dt_dtype=FP32),
]
TINY = Case(1, 6, 2, 1, 2, 3, FP64, z=True)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check_case(case, inputs, cases.run_case(case, inputs))


@pytest.mark.parametrize("case", cases.layouts(FP32), ids=str)
def test_memory(case):
    """Inputs stay as they were, and nothing outside the tensors shows in the results."""
    inputs = cases.make(case)
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    cases.check_case(case, inputs, results)


def test_recurrence_is_the_parallel_form():
    """What all tests take for the truth is the definition, token by token."""
    for case in (Case(2, 75, 4, 2, 8, 16, FP64, z=True, d=2), Case(1, 9, dtype=FP64)):
        inputs = cases.make(case)
        slow = cases.reference(case, inputs, cases.recurrence)
        torch.testing.assert_close(cases.reference(case, inputs), slow)


@pytest.mark.parametrize("at", [0, 1, 63, 64, 65, 130])
def test_a_sequence_resumes_from_its_state(at):
    case = Case(2, 130, 2, 1, 8, 16, FP64, z=True)
    x, dt, A, B, C, D, z, bias, initial, *_ = cases.make(case)
    whole, last = call(case, x, dt, A, B, C, D, z, bias, initial)
    state, parts = initial, []
    for part in (slice(0, at), slice(at, None)):
        tokens = [t[:, part] for t in (x, dt, B, C, z)]
        y, state = call(case, *tokens[:2], A, *tokens[2:4], D, tokens[4], bias, state)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(state, last)


@pytest.mark.parametrize("ends", [None, (0, 30, 90)], ids=str)
def test_a_skip_of_each_channel_is_rounded_once(ends):
    """Of float32's y + D x, which is off by some 2^-24 of both."""
    case = Case(length=90, dtype=BF16, d=2, states=False, ends=ends or ())
    x, dt, A, B, C, D, *_ = cases.make(case)
    D = D.to(BF16)
    numbers = None if ends is None else torch.tensor(ends)
    without = thunderkittens.mamba2(x, dt, A, B, C, cu_seqlens=numbers).double()
    y = thunderkittens.mamba2(x, dt, A, B, C, D=D, cu_seqlens=numbers)
    product = x.double() * D.double()
    want = without + product
    off = 2.0**-23 * (without.abs() + product.abs())
    assert ((want - off).to(BF16) <= y).all() and (y <= (want + off).to(BF16)).all()


def test_is_linear_attention_of_weighted_values():
    case = Case(2, 70, 4, 2, 8, 16, FP64, softplus=False, bias=False, d=0, states=False)
    x, dt, A, B, C, *_ = cases.make(case)
    o = thunderkittens.linear_attention(C, B, x * dt.unsqueeze(-1), log_decay=dt * A, scale=1.0)
    torch.testing.assert_close(thunderkittens.mamba2(x, dt, A, B, C), o)


@pytest.mark.parametrize(
    "case",
    [
        TINY,
        Case(1, 5, 2, 2, 2, 3, FP64, d=2, limit=(0.05, 0.3), states=False),
        Case(2, 5, 2, 1, 2, 3, FP64, d=0, softplus=False, bias=False),
    ],
    ids=str,
)
def test_gradcheck(case):
    leaves = leaves_of(case)
    given = [t for t in leaves if t is not None]

    def function(*tensors):
        rest = iter(tensors)
        return call(case, *(None if t is None else next(rest) for t in leaves))

    assert torch.autograd.gradcheck(function, given)


@pytest.mark.parametrize("which", range(9), ids=cases.INPUTS)
def test_gradient_of_one_input_alone(which):
    """What is not needed is not computed, and changes nothing."""
    case = Case(2, 70, 4, 2, 8, 16, FP64, z=True)
    inputs = cases.make(case)
    want = cases.reference(case, inputs)[2 + which]
    given = [t.detach().clone().requires_grad_(i == which) for i, t in enumerate(inputs[:9])]
    count = 1 if cases.INPUTS[which] in ("D", "C", "z") else 2  # what the state depends on
    outputs = call(case, *given)[:count]
    (got,) = torch.autograd.grad(outputs, given[which], inputs[9 : 9 + count])
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("used", [0, 1])
def test_gradient_of_one_output_alone(used):
    case = Case(1, 70, 2, 2, 8, 16, FP64, d=0)
    x, dt, A, B, C, D, z, bias, initial = leaves_of(case)
    ours = call(case, x, dt, A, B, C, D, z, bias, initial)[used]
    theirs = cases.recurrence(case, x, dt, A, B, C, D, z, bias, initial)[used]
    inputs = (x, dt, A, B, bias, initial)
    given = torch.randn_like(ours)
    got = torch.autograd.grad(ours, inputs, given)
    torch.testing.assert_close(got, torch.autograd.grad(theirs, inputs, given))


@pytest.mark.parametrize("sizes", [(0, 5, 2), (2, 0, 2), (1, 3, 0)], ids=str)
def test_no_tokens(sizes):
    """The state passes through, and so does its gradient."""
    batch, length, heads = sizes
    x = torch.randn(batch, length, heads, 8, requires_grad=True)
    dt = torch.randn(batch, length, heads, requires_grad=True)
    B = torch.randn(batch, length, 1, 16)
    state = torch.randn(batch, heads, 8, 16, requires_grad=True)
    A = -torch.ones(heads)
    y, last = thunderkittens.mamba2(
        x, dt, A, B, B, dt_softplus=True, initial_state=state, return_final_state=True
    )
    assert y.shape == x.shape
    assert torch.equal(last, state)
    last.sum().backward()
    assert torch.equal(state.grad, torch.ones_like(state))
    assert x.grad.shape == x.shape
    assert dt.grad.shape == dt.shape


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_break(dynamic):
    case = Case(2, 70, 4, 2, 8, 16, FP32, z=True)
    inputs = cases.make(case)
    counter = CompileCounterWithBackend("aot_eager")

    def function(x, dt, A, B, C, D, z, bias, initial):
        return thunderkittens.mamba2(
            x,
            dt,
            A,
            B,
            C,
            D=D,
            z=z,
            dt_bias=bias,
            dt_softplus=True,
            initial_state=initial,
            return_final_state=True,
        )

    compiled = torch.compile(function, backend=counter, fullgraph=True, dynamic=dynamic)
    results = []
    for each in (function, compiled):
        leaves = [t.clone().requires_grad_() for t in inputs[:9]]
        outputs = each(*leaves)
        results.append([*outputs, *torch.autograd.grad(outputs, leaves, inputs[9:])])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)
    assert counter.frame_count == 1


def test_opcheck():
    x, dt, A, B, C, D, _, bias, initial = leaves_of(Case(1, 5, 2, 1, 8, 16, FP32))
    for op in ("mamba2", "mamba2_forward"):
        function = getattr(torch.ops.thunderkittens, op).default
        torch.library.opcheck(function, (x, dt, A, B, C, D, bias, True, 0.0, None, initial))


def test_autocast_keeps_what_is_float32():
    case = Case(1, 70, 2, 1, 8, 16, FP32)
    x, dt, A, B, C, D, z, bias, initial, *_ = cases.make(case)
    with torch.autocast("cpu", BF16):
        y, state = call(case, x, dt, A, B, C, D, z, bias, initial)
    assert (y.dtype, state.dtype) == (BF16, FP32)
    x, B, C = (t.to(BF16) for t in (x, B, C))
    want, _ = call(case, x, dt, A, B, C, D, z, bias, initial)
    assert torch.equal(y, want)


def test_refuses_what_does_not_fit():
    x, dt, A = torch.randn(1, 5, 3, 8), torch.randn(1, 5, 3), -torch.ones(3)
    B = torch.randn(1, 5, 1, 16)
    with pytest.raises(ValueError, match=r"mamba2: .*multiple of"):
        thunderkittens.mamba2(x, dt, A, B.expand(1, 5, 2, 16), B.expand(1, 5, 2, 16))
    with pytest.raises(ValueError, match=r"mamba2: dt must have shape \[1, 5, 3\]"):
        thunderkittens.mamba2(x, dt[:, :4], A, B, B)
    with pytest.raises(ValueError, match=r"mamba2: D must have shape \[3, 8\], got \[3, 7\]"):
        thunderkittens.mamba2(x, dt, A, B, B, D=torch.ones(3, 7))
    with pytest.raises(ValueError, match=r"mamba2: z must have shape \[1, 5, 3, 8\]"):
        thunderkittens.mamba2(x, dt, A, B, B, z=x[:, :4])
    with pytest.raises(ValueError, match=r"mamba2: dt_max must be at least dt_min, 0.5, got 0.1"):
        thunderkittens.mamba2(x, dt, A, B, B, dt_limit=(0.5, 0.1))
    with pytest.raises(ValueError, match=r"mamba2: dt_min must be finite and >= 0, got -1"):
        thunderkittens.mamba2(x, dt, A, B, B, dt_limit=(-1.0, math.inf))
    with pytest.raises(TypeError, match="mamba2: A must have dtype float32, got float16"):
        thunderkittens.mamba2(x, dt, A.half(), B, B)
