"""linear_attention on the CPU (ATen backend), and what holds on every backend alike."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import thunderkittens
from tests.families.linear_attention import cases
from tests.families.linear_attention.cases import BF16, FP16, FP32, FP64, Case
from thunderkittens.testing import check_memory

ALL = [
    *cases.lengths(dtype=FP64),
    *cases.lengths(chunks=(1,), dtype=FP32),
    *cases.widths((FP32,)),
    *cases.options(FP64),
    *cases.options(FP32),
    *cases.layouts(),
    *cases.packed(FP64),
    Case(key_width=200, value_width=7, length=66, dtype=FP32),
    Case(dtype=FP16),
]


def leaves_of(case: Case):
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


def test_recurrence_is_the_parallel_form():
    """What all tests take for the truth is the definition, token by token."""
    for case in (
        Case(2, 75, 4, 2, 8, 16, FP64, strength=0.5),
        Case(1, 9, 2, 1, 8, 8, FP64, "none"),
    ):
        inputs = cases.make(case)
        slow = cases.reference(case, inputs, cases.recurrence)
        torch.testing.assert_close(cases.reference(case, inputs, cases.parallel), slow)


@pytest.mark.parametrize("at", [0, 1, 63, 64, 65, 130])
def test_a_sequence_resumes_from_its_state(at):
    case = Case(2, 130, 2, 1, 8, 16, FP64)
    q, k, v, decay, initial, *_ = cases.make(case)
    whole, last = thunderkittens.linear_attention(
        q, k, v, log_decay=decay, initial_state=initial, output_final_state=True
    )
    state, parts = initial, []
    for part in (slice(0, at), slice(at, None)):
        o, state = thunderkittens.linear_attention(
            q[:, part],
            k[:, part],
            v[:, part],
            log_decay=decay[:, part],
            initial_state=state,
            output_final_state=True,
        )
        parts.append(o)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(state, last)


@pytest.mark.parametrize("decay", cases.DECAYS)
@pytest.mark.parametrize("states", [False, True])
def test_gradcheck(decay, states):
    case = Case(1, 66, 2, 1, 2, 3, FP64, decay, 0.5, states)
    leaves = leaves_of(case)
    given = [t for t in leaves if t is not None]

    def call(*tensors):
        rest = iter(tensors[3:])
        return thunderkittens.linear_attention(
            *tensors[:3],
            log_decay=None if leaves[3] is None else next(rest),
            initial_state=None if leaves[4] is None else next(rest),
            output_final_state=states,
        )

    assert torch.autograd.gradcheck(call, given, fast_mode=True)


@pytest.mark.parametrize("which", range(5))
def test_gradient_of_one_input_alone(which):
    """What is not needed is not computed, and changes nothing."""
    case = Case(2, 70, 4, 2, 8, 16, FP64)
    inputs = cases.make(case)
    want = cases.reference(case, inputs, cases.recurrence)[2 + which]
    given = [t.clone().requires_grad_(i == which) for i, t in enumerate(inputs[:5])]
    q, k, v, decay, initial = given
    outputs = thunderkittens.linear_attention(
        q, k, v, log_decay=decay, initial_state=initial, output_final_state=True
    )
    (got,) = torch.autograd.grad(outputs, given[which], inputs[5:])
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("used", [0, 1])
def test_gradient_of_one_output_alone(used):
    case = Case(1, 70, 2, 2, 8, 16, FP64)
    q, k, v, decay, initial = leaves_of(case)
    options = {"log_decay": decay, "initial_state": initial, "output_final_state": True}
    ours = thunderkittens.linear_attention(q, k, v, **options)[used]
    theirs = cases.recurrence(q, k, v, decay, initial, 8**-0.5)[used]
    inputs = (k, v, decay, initial)
    given = torch.randn_like(ours)
    got = torch.autograd.grad(ours, inputs, given)
    torch.testing.assert_close(got, torch.autograd.grad(theirs, inputs, given))


@pytest.mark.parametrize("sizes", [(0, 5, 2), (2, 0, 2), (1, 3, 0)], ids=str)
def test_no_tokens(sizes):
    """The state passes through, and so does its gradient."""
    batch, length, heads = sizes
    q = torch.randn(batch, length, heads, 8, requires_grad=True)
    state = torch.randn(batch, heads, 8, 8, requires_grad=True)
    decay = -torch.rand(batch, length, heads)
    o, last = thunderkittens.linear_attention(
        q, q, q, log_decay=decay, initial_state=state, output_final_state=True
    )
    assert o.shape == q.shape
    assert torch.equal(last, state)
    last.sum().backward()
    assert torch.equal(state.grad, torch.ones_like(state))
    assert q.grad.shape == q.shape


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_break(dynamic):
    case = Case(2, 70, 4, 2, 8, 16, FP32)
    inputs = cases.make(case)
    counter = CompileCounterWithBackend("aot_eager")

    def call(q, k, v, decay, initial):
        return thunderkittens.linear_attention(
            q, k, v, log_decay=decay, initial_state=initial, output_final_state=True
        )

    compiled = torch.compile(call, backend=counter, fullgraph=True, dynamic=dynamic)
    results = []
    for function in (call, compiled):
        leaves = [t.clone().requires_grad_() for t in inputs[:5]]
        outputs = function(*leaves)
        results.append([*outputs, *torch.autograd.grad(outputs, leaves, inputs[5:])])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)
    assert counter.frame_count == 1


def test_opcheck():
    case = Case(1, 5, 2, 1, 8, 16, FP32)
    q, k, v, decay, initial = leaves_of(case)
    for op in ("linear_attention", "linear_attention_forward"):
        function = getattr(torch.ops.thunderkittens, op).default
        torch.library.opcheck(function, (q, k, v, decay, None, initial))


def test_autocast_keeps_decays_and_states():
    q, k, v, decay, initial, *_ = cases.make(Case(1, 70, 2, 1, 8, 16, FP32))
    with torch.autocast("cpu", BF16):
        o, state = thunderkittens.linear_attention(
            q, k, v, log_decay=decay, initial_state=initial, output_final_state=True
        )
    assert (o.dtype, state.dtype) == (BF16, FP32)
    want = thunderkittens.linear_attention(
        *(t.to(BF16) for t in (q, k, v)), log_decay=decay, initial_state=initial
    )
    assert torch.equal(o, want)


@pytest.mark.parametrize("packed", [False, True])
def test_normalizer(packed):
    """o is a weighted mean of the values, and z is the state's sum of keys."""
    case = Case(1, 90, 4, 2, 8, 16, FP64, ends=(0, 30, 90) if packed else ())
    q, k, v, decay, initial, *_ = leaves_of(case)
    positive = [torch.nn.functional.softplus(t) for t in (q, k)]
    z = torch.rand(case.sequences, 4, 8, dtype=FP64, requires_grad=True)
    cu_seqlens = torch.tensor(case.ends) if packed else None
    o, state = thunderkittens.linear_attention(
        *positive,
        v,
        log_decay=decay,
        initial_state=(initial, z),
        output_final_state=True,
        cu_seqlens=cu_seqlens,
        normalize=True,
        eps=0.01,
    )
    scale = 8**-0.5
    given = (*positive, torch.ones_like(v), decay)
    want, last = cases.of_sequences(case, (*positive, v, decay, initial), scale, cases.parallel)
    ones = (*given, z.unsqueeze(-1).expand_as(initial))
    sums, last_z = cases.of_sequences(case, ones, scale, cases.parallel)
    want = want / (sums + 0.01)
    torch.testing.assert_close((o, *state), (want, last, last_z[..., 0]))
    leaves = (q, k, v, decay, initial, z)
    d_o = torch.randn_like(o)
    got = torch.autograd.grad((o, state[1]), leaves, (d_o, torch.ones_like(z)), retain_graph=True)
    theirs = torch.autograd.grad((want, last_z[..., 0]), leaves, (d_o, torch.ones_like(z)))
    torch.testing.assert_close(got, theirs)


def test_normalizer_without_states():
    q = torch.rand(1, 5, 2, 8)
    v = torch.ones(1, 5, 2, 3)
    o = thunderkittens.linear_attention(q, q, v, normalize=True)
    torch.testing.assert_close(o, v)


def test_refuses_what_does_not_fit():
    q, v = torch.randn(1, 5, 2, 8), torch.randn(1, 5, 3, 8)
    with pytest.raises(ValueError, match=r"v.size\(-2\) must be a multiple of q.size\(-2\) = 2"):
        thunderkittens.linear_attention(q, q, v)
    with pytest.raises(
        ValueError, match=r"linear_attention: log_decay must have shape \[1, 5, 2\]"
    ):
        thunderkittens.linear_attention(q, q, q, log_decay=torch.zeros(1, 4, 2))
    with pytest.raises(ValueError, match=r"log_decay must have shape \[1, 5, 2\].*got \[1, 5, 3\]"):
        thunderkittens.linear_attention(q, q, q, log_decay=torch.zeros(3))
    with pytest.raises(TypeError, match="linear_attention: log_decay must have dtype float32"):
        thunderkittens.linear_attention(q, q, q, log_decay=torch.zeros(2).half())
    with pytest.raises(ValueError, match=r"initial_state must have shape \[1, 2, 8, 8\]"):
        thunderkittens.linear_attention(q, q, q, initial_state=torch.zeros(1, 8, 8))
    packed = torch.randn(5, 2, 8)
    with pytest.raises(ValueError, match=r"linear_attention: cu_seqlens .*\[sequences \+ 1\]"):
        thunderkittens.linear_attention(packed, packed, packed, cu_seqlens=torch.tensor([]).long())
    with pytest.raises(ValueError, match="initial_state must have a state of each of 2 sequences"):
        thunderkittens.linear_attention(
            packed,
            packed,
            packed,
            initial_state=torch.zeros(3, 2, 8, 8),
            cu_seqlens=torch.tensor([0, 2, 5]),
        )
