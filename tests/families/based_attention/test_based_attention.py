"""based_attention on the CPU (ATen backend), and what holds on every backend alike."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import thunderkittens
from tests.families.based_attention import cases
from tests.families.based_attention.cases import BF16, FP16, FP32, FP64, Case
from tests.tools.aten_calls import Inside
from thunderkittens.testing import check_memory

ALL = [
    *cases.lengths(chunks=(0, 1, 2), dtype=FP64),
    *cases.widths((FP32,)),
    *cases.wide((FP32,)),
    *cases.options(FP32),
    Case(dtype=FP64),
    *cases.layouts(),
    Case(key_width=5, value_width=7, length=66, dtype=FP32),
    Case(key_width=1, value_width=1, length=66, dtype=BF16),
    Case(dtype=FP16),
]


def leaves_of(case: Case) -> list:
    """The inputs that may have a gradient, as leaves that have one."""
    return [None if t is None else t.clone().requires_grad_() for t in cases.make(case)[:5]]


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


@pytest.mark.parametrize("normalize", [False, True])
def test_recurrence_is_the_parallel_form(normalize):
    """What all tests take for the truth is the definition, token by token."""
    case = Case(2, 75, 2, 4, 8, FP64, normalize)
    inputs = cases.make(case)
    slow, _ = cases.reference(case, inputs, cases.recurrence)
    torch.testing.assert_close(cases.reference(case, inputs)[0], slow)


def test_features_are_the_weights():
    x, y = torch.randn(2, 50, 7, dtype=FP64).unbind()
    for scale in (None, 0.2, 3.0):
        s = (x * y).sum(-1) * (7**-0.5 if scale is None else scale)
        got = [thunderkittens.based_features(t, scale=scale) for t in (x, y)]
        torch.testing.assert_close((got[0] * got[1]).sum(-1), 1 + s + s * s / 2)


def test_gradient_of_features_has_an_order():
    """Sums of it: the same bits on every run of a GPU."""
    x = torch.randn(3, 5, dtype=FP64, requires_grad=True)
    assert torch.autograd.gradcheck(thunderkittens.based_features, x)
    with Inside() as seen:
        thunderkittens.based_features(x).sum().backward()
    assert seen.calls and not seen.unordered


def test_order_of_features():
    """1, then x, then products with e before f: as documented."""
    x = torch.tensor([2.0, 3.0, 5.0], dtype=FP64)
    got = thunderkittens.based_features(x, scale=1.0)
    half = 0.5**0.5
    want = [1, 2, 3, 5, 4 * half, 6, 10, 9 * half, 15, 25 * half]
    torch.testing.assert_close(got, torch.tensor(want, dtype=FP64))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("at", [0, 1, 63, 64, 65, 130])
def test_a_sequence_resumes_from_its_state(at, normalize):
    case = Case(2, 130, 2, 8, 16, FP64, normalize)
    q, k, v, state, sums, *_ = cases.make(case)
    whole, *last = cases.call(case, q, k, v, state, sums)
    parts, states = [], [state, sums]
    for part in (slice(0, at), slice(at, None)):
        o, *states = cases.call(case, *(t[:, part] for t in (q, k, v)), *(*states, None)[:2])
        parts.append(o)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(states, last)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("states", [False, True])
def test_gradcheck(normalize, states):
    case = Case(1, 65, 1, 2, 2, FP64, normalize, states)  # two chunks; most of the cost is S
    given = [t for t in leaves_of(case) if t is not None]

    def call(*tensors):
        return tuple(cases.call(case, *tensors, *[None] * (5 - len(tensors))))

    assert torch.autograd.gradcheck(call, given)


@pytest.mark.parametrize("which", range(5))
def test_gradient_of_one_input_alone(which):
    """What is not needed is not computed, and changes nothing."""
    case = Case(2, 70, 2, 8, 16, FP64)
    inputs = cases.make(case)
    want = cases.reference(case, inputs)[0][3 + which]
    given = [t.clone().requires_grad_(i == which) for i, t in enumerate(inputs[:5])]
    (got,) = torch.autograd.grad(cases.call(case, *given), given[which], inputs[5:])
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("used", [0, 1, 2])
def test_gradient_of_one_output_alone(used):
    case = Case(1, 70, 2, 8, 16, FP64)
    inputs = list(cases.make(case))
    for i in {5, 6, 7} - {5 + used}:
        inputs[i] = torch.zeros_like(inputs[i])
    want = cases.reference(case, inputs)[0][3:]
    leaves = [t.clone().requires_grad_() for t in inputs[:5]]
    output = cases.call(case, *leaves)[used]
    reached = leaves if used == 0 else [leaves[1], leaves[2 + used]]
    got = torch.autograd.grad(output, reached, inputs[5 + used])
    indices = range(5) if used == 0 else (1, 2 + used)
    torch.testing.assert_close(list(got), [want[i] for i in indices])


@pytest.mark.parametrize("sizes", [(0, 5, 2), (2, 0, 2), (1, 3, 0)], ids=str)
def test_no_tokens(sizes):
    """The states pass through, and so do their gradients."""
    batch, length, heads = sizes
    q = torch.randn(batch, length, heads, 8, requires_grad=True)
    state = torch.randn(batch, heads, 45, 8, requires_grad=True)
    sums = torch.randn(batch, heads, 45, requires_grad=True)
    o, last = thunderkittens.based_attention(
        q, q, q, initial_state=(state, sums), output_final_state=True
    )
    assert o.shape == q.shape
    assert torch.equal(last[0], state)
    assert torch.equal(last[1], sums)
    (last[0].sum() + 2 * last[1].sum()).backward()
    assert torch.equal(state.grad, torch.ones_like(state))
    assert torch.equal(sums.grad, torch.full_like(sums, 2))
    assert q.grad is None or q.grad.shape == q.shape


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_compiles_without_a_break(dynamic, normalize):
    case = Case(2, 70, 2, 8, 16, FP32, normalize)
    inputs = cases.make(case)
    given = [t for t in inputs[:5] if t is not None]
    counter = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()

    def call(q, k, v, state, sums=None):
        return cases.call(case, q, k, v, state, sums)

    compiled = torch.compile(call, backend=counter, fullgraph=True, dynamic=dynamic)
    results = []
    for function in (call, compiled):
        leaves = [t.clone().requires_grad_() for t in given]
        outputs = function(*leaves)
        gradients = torch.autograd.grad(outputs, leaves, [t for t in inputs[5:] if t is not None])
        results.append([*outputs, *gradients])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)
    # With `dynamic`, torch begins again once it sees that eps is a constant.
    assert counter.frame_count <= 1 + dynamic


@pytest.mark.parametrize("normalize", [False, True])
def test_opcheck(normalize):
    q, k, v, state, sums = leaves_of(Case(1, 5, 2, 8, 16, FP32, normalize))
    for op in ("based_attention", "based_attention_forward"):
        function = getattr(torch.ops.thunderkittens, op).default
        torch.library.opcheck(function, (q, k, v, normalize, 1e-6, None, state, sums))


def test_eps_is_added():
    q, k, v, *_ = cases.make(Case(1, 70, 2, 8, 16, FP64, states=False))
    plain = thunderkittens.based_attention(q, k, v, normalize=False)
    weights = thunderkittens.based_attention(q, k, torch.ones_like(v), normalize=False)
    got = thunderkittens.based_attention(q, k, v, eps=0.5)
    torch.testing.assert_close(got, plain / (weights + 0.5))


def test_autocast_keeps_states():
    case = Case(1, 70, 2, 8, 16, FP32)
    q, k, v, state, sums, *_ = cases.make(case)
    with torch.autocast("cpu", BF16):
        o, *last = cases.call(case, q, k, v, state, sums)
    assert [o.dtype, *(t.dtype for t in last)] == [BF16, FP32, FP32]
    want = cases.call(case, *(t.to(BF16) for t in (q, k, v)), state, sums)
    assert torch.equal(o, want[0])


def test_maps_over_a_dimension():
    """torch.func: vmap, and gradients of each."""
    case = Case(2, 66, 2, 8, 16, FP64)
    tensors = [torch.stack([t, 2 * t]) for t in cases.make(case)[:3]]

    def loss(q, k, v):
        return thunderkittens.based_attention(q, k, v).square().sum()

    got = torch.vmap(torch.func.grad(loss))(*tensors)
    want = torch.stack([torch.func.grad(loss)(*(t[i] for t in tensors)) for i in range(2)])
    torch.testing.assert_close(got, want)


def test_refuses_what_does_not_fit():
    based, q = thunderkittens.based_attention, torch.randn(1, 5, 2, 8)
    state, sums = torch.zeros(1, 2, 45, 8), torch.zeros(1, 2, 45)
    with pytest.raises(
        ValueError, match=r"based_attention: v must have shape .*got \[1, 5, 3, 8\]"
    ):
        based(q, q, torch.randn(1, 5, 3, 8))
    for scale in (0.0, -1.0):
        with pytest.raises(ValueError, match="based_attention: scale must be above 0, got"):
            based(q, q, q, scale=scale)
    with pytest.raises(ValueError, match=r"initial_state.size\(2\) must be 45, the features of"):
        based(q, q, q, initial_state=(torch.zeros(1, 2, 73, 8), torch.zeros(1, 2, 73)))
    with pytest.raises(TypeError, match=r"must be a pair \(S, z\) with normalize, got Tensor"):
        based(q, q, q, initial_state=state)
    with pytest.raises(TypeError, match="must be a tensor without normalize, got tuple"):
        based(q, q, q, initial_state=(state, sums), normalize=False)
