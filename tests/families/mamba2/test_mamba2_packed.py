"""mamba2 of packed sequences: what no list of cases shows. (test_mamba2.py judges the numbers.)"""

import dataclasses

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import thunderkittens
from tests.families.mamba2 import apart, cases
from tests.families.mamba2.cases import BF16, FP32, FP64, Case
from tests.families.mamba2.leaves import call, leaves_of
from tests.tools.in_simulator import needs_simulator
from thunderkittens import nn

PACKED = Case(length=20, heads=2, head_width=8, state_width=16, dtype=FP32, ends=(0, 3, 3, 20))


def operands(case: Case, device: str = "cpu"):
    """As torch.ops' mamba2 takes them."""
    x, dt, A, B, C, D, _, bias, initial, *_ = (
        t if t is None else t.to(device).requires_grad_() for t in cases.make(case)
    )
    ends = torch.tensor(case.ends, device=device)
    return x, dt, A, B, C, D, bias, True, 0.0, None, initial, ends


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_is_each_sequence_by_itself(index):
    """The definition of packing, to the bit; whichever the numbers' type is."""
    case = Case(length=150, groups=1, ends=(0, 64, 64, 129, 150), dtype=FP64)
    x, dt, A, B, C, D, _, bias, initial, *_ = cases.make(case)
    options = {"D": D, "dt_bias": bias, "dt_softplus": True, "return_final_state": True}
    ends = torch.tensor(case.ends, dtype=index)
    y, states = thunderkittens.mamba2(
        x, dt, A, B, C, **options, initial_state=initial, cu_seqlens=ends
    )
    for i in range(4):
        part = slice(case.ends[i], case.ends[i + 1])
        one = [t[None, part] for t in (x, dt, B, C)]
        want = thunderkittens.mamba2(
            *one[:2], A, *one[2:], **options, initial_state=initial[i : i + 1]
        )
        torch.testing.assert_close((y[None, part], states[i : i + 1]), want)


def test_gradcheck():
    case = Case(length=5, heads=2, head_width=2, state_width=3, dtype=FP64, ends=(0, 2, 2, 5))
    leaves = leaves_of(case)
    given = [t for t in leaves if t is not None]

    def function(*tensors):
        rest = iter(tensors)
        return call(case, *(None if t is None else next(rest) for t in leaves))

    assert torch.autograd.gradcheck(function, given, fast_mode=True)


@pytest.mark.parametrize("which", range(9), ids=cases.INPUTS)
def test_gradient_of_one_input_alone(which):
    case = Case(length=70, heads=4, groups=2, dtype=FP64, z=True, ends=(0, 3, 3, 70))
    inputs = cases.make(case)
    want = cases.reference(case, inputs)[2 + which]
    given = [t.detach().clone().requires_grad_(i == which) for i, t in enumerate(inputs[:9])]
    count = 1 if cases.INPUTS[which] in ("D", "C", "z") else 2  # what the state depends on
    outputs = call(case, *given)[:count]
    (got,) = torch.autograd.grad(outputs, given[which], inputs[9 : 9 + count])
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("ends", [(0,), (0, 0), (2, 2, 2)], ids=str)
def test_no_tokens_of_any(ends):
    """All states pass through, and y is 0."""
    case = Case(length=5, heads=2, head_width=8, state_width=8, dtype=FP32, ends=ends)
    inputs = cases.make(case)
    y, last, *gradients = cases.run_case(case, inputs)
    names = cases.names(case)[2:]
    assert torch.equal(y, torch.zeros(5, 2, 8))
    assert torch.equal(last, inputs[8])
    for name, got in zip(names, gradients, strict=True):
        want = inputs[10] if name == "dinitial_state" else torch.zeros_like(got)
        torch.testing.assert_close(got, want, rtol=0, atol=0, msg=name)


def test_numbers_out_of_range_are_clamped():
    x, dt, A, B, C, *rest = operands(PACKED)
    far = torch.tensor([-7, 3, 3, 1000])
    want = torch.ops.thunderkittens.mamba2_forward(x, dt, A, B, C, *rest)
    got = torch.ops.thunderkittens.mamba2_forward(x, dt, A, B, C, *rest[:-1], far)
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_opcheck():
    torch.library.opcheck(torch.ops.thunderkittens.mamba2_forward.default, operands(PACKED))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_break(dynamic):
    inputs = cases.make(PACKED)
    counter = CompileCounterWithBackend("aot_eager")
    ends = torch.tensor(PACKED.ends)

    def function(x, dt, A, B, C, D, bias, initial, ends):
        options = {"D": D, "dt_bias": bias, "dt_softplus": True, "initial_state": initial}
        return thunderkittens.mamba2(
            x, dt, A, B, C, **options, return_final_state=True, cu_seqlens=ends
        )

    compiled = torch.compile(function, backend=counter, fullgraph=True, dynamic=dynamic)
    results = []
    for each in (function, compiled):
        leaves = [t.clone().requires_grad_() for t in inputs[:9] if t is not None]
        outputs = each(*leaves, ends)
        results.append([*outputs, *torch.autograd.grad(outputs, leaves, inputs[9:])])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)
    assert counter.frame_count == 1


def test_vmap():
    """Of x, of the numbers, and of A: a call for each."""
    x, dt, A, B, C, D, bias, *rest = operands(PACKED)
    some = torch.stack([x, 2 * x, -x])
    ends = torch.tensor([[0, 3, 3, 20], [0, 10, 12, 20], [1, 1, 1, 19]])

    def function(x, ends, A):
        return torch.ops.thunderkittens.mamba2_forward(x, dt, A, B, C, D, bias, *rest[:-1], ends)

    got = torch.func.vmap(function, (0, 0, None))(some, ends, A)
    want = [function(*one, A) for one in zip(some, ends, strict=True)]
    torch.testing.assert_close(got, tuple(map(torch.stack, zip(*want, strict=True))))
    got = torch.func.vmap(function, (None, None, 0))(x, ends[0], torch.stack([A, 2 * A]))
    want = [function(x, ends[0], a) for a in (A, 2 * A)]
    torch.testing.assert_close(got, tuple(map(torch.stack, zip(*want, strict=True))))


@needs_simulator
def test_explain(monkeypatch):
    monkeypatch.delenv("THUNDERKITTENS_STRICT", raising=False)
    x, B = torch.randn(5, 2, 16).to(BF16), torch.randn(5, 2, 256).to(BF16)
    dt, A, ends = torch.randn(5, 2), -torch.ones(2), torch.tensor([0, 5])
    with thunderkittens.backend("simulator"):
        found = thunderkittens.explain("mamba2", x, dt, A, x, x, cu_seqlens=ends)
        wide = thunderkittens.explain("mamba2", x, dt, A, B, B, cu_seqlens=ends)
    assert (found.backend, found.notes) == ("simulator", ())
    assert wide.backend == "torch"


@needs_simulator
@pytest.mark.parametrize("which", range(9), ids=cases.INPUTS)
def test_gradient_of_one_input_alone_by_the_kernels(which):
    """The same bits, also where the kernel of C's or of B's gradient is not launched."""
    ends = (0, 40, 40, 70) if cases.INPUTS[which] == "z" else (2, 40, 40, 64)
    case = Case(length=70, heads=2, head_width=16, state_width=24, z=ends[0] == 0, ends=ends)
    inputs = cases.make(case)
    names = cases.names(case)
    count = 1 if cases.INPUTS[which] in ("D", "C", "z") else 2
    with thunderkittens.backend("simulator"):
        want = cases.run_case(case, inputs)[names.index(f"d{cases.INPUTS[which]}")]
        given = [
            t if t is None else t.clone().requires_grad_(i == which)
            for i, t in enumerate(inputs[:9])
        ]
        outputs = call(case, *given)
        (got,) = torch.autograd.grad(outputs[:count], given[which], inputs[9 : 9 + count])
    assert torch.equal(got, want)


@pytest.mark.parametrize("which", apart.SPOILED)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [FP64, FP32, BF16], ids=str)
def test_not_finite_stays_in_its_sequence(dtype, value, which):
    case = dataclasses.replace(apart.APART, dtype=dtype)
    apart.check(case, which, lambda _: value)


@pytest.mark.parametrize("which", apart.SPOILED)
@pytest.mark.parametrize("dtype", [FP64, FP32, BF16], ids=str)
def test_large_gradients_take_no_digits_from_others(dtype, which):
    """The others have the same bits; and all are as near to float64 as their own size allows."""
    case = dataclasses.replace(apart.APART, dtype=dtype)
    apart.check(case, which, lambda x: x * 2.0**60, apart.GRADIENTS)
    inputs = with_large_gradients(case, which)
    cases.check_case(case, inputs, cases.run_case(case, inputs))


def with_large_gradients(case: Case, which: int) -> list:
    """Its inputs; what one sequence is given as gradients is large."""
    inputs = list(cases.make(case))
    inputs[9][slice(*case.ends[which : which + 2])] *= 2.0**60
    inputs[10][which] *= 2.0**60
    return inputs


@needs_simulator
@pytest.mark.parametrize("kernel", [None, "generic"], ids=["specialised", "generic"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("case", "which"),
    [*((apart.APART, which) for which in apart.SPOILED), (apart.OF_SEGMENTS, 1)],
    ids=str,
)
def test_not_finite_stays_in_its_sequence_by_the_kernels(case, which, value, kernel, monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    with thunderkittens.backend("simulator", kernel=kernel):
        apart.check(case, which, lambda _: value)


@needs_simulator
def test_large_gradients_take_no_digits_from_others_by_the_kernels(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    inputs = with_large_gradients(apart.APART, 0)
    with thunderkittens.backend("simulator"):
        results = cases.run_case(apart.APART, inputs)
        apart.check(apart.APART, 0, lambda x: x * 2.0**60, apart.GRADIENTS)
    cases.check_case(apart.APART, inputs, results)


def test_refuses_what_does_not_fit():
    x, dt, A = torch.randn(5, 3, 8), torch.randn(5, 3), -torch.ones(3)
    B, ends = torch.randn(5, 1, 16), torch.tensor([0, 2, 5])
    with pytest.raises(
        ValueError, match=r"mamba2: x must have shape \[T, H, P\].*got \[1, 5, 3, 8\]"
    ):
        thunderkittens.mamba2(x[None], dt[None], A, B[None], B[None], cu_seqlens=ends)
    with pytest.raises(ValueError, match=r"mamba2: x must have .*\[B, S, H, P\].*got \[5, 3, 8\]"):
        thunderkittens.mamba2(x, dt, A, B, B)
    with pytest.raises(ValueError, match=r"mamba2: dt must have shape \[5, 3\]"):
        thunderkittens.mamba2(x, dt[:4], A, B, B, cu_seqlens=ends)
    with pytest.raises(ValueError, match=r"mamba2: cu_seqlens .*\[sequences \+ 1\], got \[0\]"):
        thunderkittens.mamba2(x, dt, A, B, B, cu_seqlens=ends[:0])
    with pytest.raises(ValueError, match="initial_state must have a state of each of 2 sequences"):
        thunderkittens.mamba2(
            x, dt, A, B, B, cu_seqlens=ends, initial_state=torch.zeros(3, 3, 8, 16)
        )
    with pytest.raises(TypeError, match="mamba2: cu_seqlens must have dtype int32 or int64"):
        thunderkittens.mamba2(x, dt, A, B, B, cu_seqlens=ends.float())
    with pytest.raises(ValueError, match=r"mamba2: D must have shape \[3, 8\]"):
        thunderkittens.mamba2(x, dt, A, B, B, cu_seqlens=ends, D=torch.ones(3, 7))


@pytest.mark.parametrize("ends", [(0, 1, 5, 5, 9), (0, 9), (0, 3, 8)], ids=str)
@pytest.mark.parametrize("d_conv", [2, 4])
def test_layer(ends, d_conv):
    """The convolution sees no other sequence either; nor does its state, which is of each."""
    layer = nn.Mamba2(16, d_state=24, headdim=8, d_conv=d_conv, ngroups=2, dtype=FP64)
    u, cu_seqlens = torch.randn(9, 16, dtype=FP64, requires_grad=True), torch.tensor(ends)
    count, parts = len(ends) - 1, [slice(*ends[i : i + 2]) for i in range(len(ends) - 1)]
    there = slice(ends[0], ends[-1])
    got = layer(u, cu_seqlens=cu_seqlens)
    want = torch.cat([layer(u[None, part])[0] for part in parts if part.start < part.stop])
    torch.testing.assert_close(got[there], want)
    leaves, d_out = [u, *layer.parameters()], torch.randn_like(want)
    found = (torch.autograd.grad(y, leaves, d_out) for y in (got[there], want))
    torch.testing.assert_close(*map(tuple, found))
    with torch.no_grad():
        state = tuple(torch.randn_like(t) for t in layer.init_state(count))
        ours = tuple(t.clone() for t in state)
        got = layer(u, ours, cu_seqlens=cu_seqlens)
        for i, part in enumerate(parts):
            one = tuple(t[i : i + 1].clone() for t in state)
            if part.start < part.stop:
                torch.testing.assert_close(got[part], layer(u[None, part], one)[0])
            torch.testing.assert_close(tuple(t[i : i + 1] for t in ours), one)


def test_layer_refuses_a_batch():
    layer = nn.Mamba2(16, d_state=24, headdim=8)
    with pytest.raises(ValueError, match=r"Mamba2: u must have shape \[T, d_model\].*\[1, 9, 16\]"):
        layer(torch.randn(1, 9, 16), cu_seqlens=torch.tensor([0, 9]))
