"""linear_attention_step on the CPU (ATen backend), and what holds on every backend alike."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import thunderkittens
from tests.families.linear_attention import step_cases as cases
from tests.families.linear_attention.step_cases import BF16, FP16, FP32, FP64, Case
from thunderkittens.testing import check_memory

step = thunderkittens.linear_attention_step
ALL = [
    *cases.widths((FP32,)),
    *cases.options(FP64),
    *cases.options(BF16),
    *cases.indexed(FP64),
    *cases.indexed(FP32),
    *cases.layouts(),
    Case(2, 1, 1, 300, 20, dtype=FP16),
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, and nothing outside the tensors is read or written."""
    inputs = cases.make(case)
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("per_head", [False, True])
def test_steps_are_the_tokens_of_linear_attention(per_head):
    batch, length, heads, keys, values = 2, 9, 4, 8, 16
    q, k = torch.randn(2, batch, length, 2, keys, dtype=FP64).unbind()
    v = torch.randn(batch, length, heads, values, dtype=FP64)
    decay = -torch.rand((heads,) if per_head else (batch, length, heads), dtype=FP64)
    initial = torch.randn(batch, heads, keys, values, dtype=FP64)
    want, last = thunderkittens.linear_attention(
        q, k, v, log_decay=decay, initial_state=initial, output_final_state=True
    )
    state = initial.clone()
    for t in range(length):
        of_token = decay if per_head else decay[:, t]
        o = step(q[:, t], k[:, t], v[:, t], state, log_decay=of_token)
        torch.testing.assert_close(o, want[:, t])
    torch.testing.assert_close(state, last)


def test_a_request_may_come_and_go_between_the_slots():
    """What a server does: sequences of their own lengths, in slots of one tensor."""
    tokens = torch.randn(3, 3, 5, 1, 8, dtype=FP64)  # q, k, v of sequences
    state = torch.zeros(4, 1, 8, 8, dtype=FP64)
    slots, lengths = (2, 0, 3), (5, 2, 4)
    found = {}
    for t in range(5):
        there = torch.tensor([s if t < n else -1 for s, n in zip(slots, lengths, strict=True)])
        q, k, v = tokens[:, :, t].unbind()
        o = step(q, k, v, state, state_indices=there)
        found |= {(b, t): o[b] for b in range(3) if t < lengths[b]}
    for b, n in enumerate(lengths):
        q, k, v = (x[b : b + 1, :n] for x in tokens)
        want, last = thunderkittens.linear_attention(q, k, v, output_final_state=True)
        torch.testing.assert_close(torch.stack([found[b, t] for t in range(n)]), want[0])
        torch.testing.assert_close(state[slots[b]], last[0])
    assert not state[1].any()


def test_no_states_at_all():
    q, state = torch.randn(2, 1, 8), torch.zeros(0, 1, 8, 8)
    o = step(q, q, q, state, state_indices=torch.tensor([0, -1]))
    assert torch.equal(o, torch.zeros(2, 1, 8))


def some(dtype=FP32, states=2):
    q, k, v = torch.randn(3, 2, 1, 8).to(dtype).unbind()
    return q, k, v, torch.randn(states, 1, 8, 8)


def test_a_backward_notices_that_its_state_was_written():
    q, k, v, state = some()
    weight = torch.ones((), requires_grad=True)
    saved = (weight * state).sum()  # keeps the state
    before = state._version
    with torch.no_grad():
        step(q, k, v, state)
    assert state._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


@pytest.mark.parametrize("which", range(4))
def test_not_differentiable(which):
    inputs = [t.requires_grad_(i == which) for i, t in enumerate(some())]
    name = ("q", "k", "v", "state")[which]
    before = inputs[3].detach().clone()
    with pytest.raises(
        NotImplementedError, match=rf"step: {name} must not require a gradient.*no_"
    ):
        step(*inputs)
    assert torch.equal(inputs[3], before)
    with torch.no_grad():
        assert not step(*inputs).requires_grad
    with torch.inference_mode():
        step(*some())


def test_vmap_maps_the_states_too():
    q, _, v, _ = some()
    states = torch.randn(3, 2, 1, 8, 8)
    keys = torch.randn(3, 2, 1, 8)
    want_states = states.clone()
    want = torch.stack([step(q, keys[i], v, want_states[i]) for i in range(3)])
    got = torch.vmap(step, in_dims=(None, 0, None, 0))(q, keys, v, states)
    assert torch.equal(got, want)
    assert torch.equal(states, want_states)
    with pytest.raises(RuntimeError, match="step: state must be mapped"):
        torch.vmap(step, in_dims=(None, 0, None, None))(q, keys, v, states[0])


@pytest.mark.parametrize(
    ("backend", "dynamic"), [("aot_eager", False), ("aot_eager", True), ("inductor", True)]
)
def test_compile(backend, dynamic):
    """No graph break, one graph for all batches when dynamic, and the bits of eager: views too."""

    def model(q, k, v, whole, layers, indices):
        o = step(q, k, v, whole, state_indices=indices)
        return o, step(q, k, o, layers[1], state_indices=indices)

    torch._dynamo.reset()
    count = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=count)
    for batch in (5, 7):
        q, k, v = torch.randn(3, batch, 1, 8).unbind()
        indices = torch.randperm(batch + 2)[:batch]
        indices[1] = -1
        states = torch.randn(batch + 2, 1, 8, 8), torch.randn(2, batch + 2, 1, 8, 8)
        runs = []
        for function in (model, compiled):
            given = [t.clone() for t in states]
            with torch.no_grad():
                runs.append([*function(q, k, v, *given, indices), *given])
        for got, want in zip(*runs, strict=True):
            torch.testing.assert_close(got, want)
    assert not dynamic or count.frame_count == 1


def test_opcheck():
    q, k, v, state = some(states=4)
    op = torch.ops.thunderkittens.linear_attention_step.default
    decay, indices = torch.zeros(2, 1), torch.tensor([3, -1])
    torch.library.opcheck(op, (q, k, v, state[:2]))
    torch.library.opcheck(op, (q, k, v, state, decay, 0.5, indices))
    functional = torch.ops.thunderkittens.linear_attention_step_functional.default
    torch.library.opcheck(functional, (q, k, v, state.mT.contiguous(), decay, 0.5, indices))
    meta = [t.to("meta") for t in (q, k, v, state, decay)]
    assert op(*meta, None, indices.to("meta")).shape == (2, 1, 8)


def test_functional_form_writes_nothing():
    q, k, v, state = some(states=4)
    indices, before = torch.tensor([3, -1]), state.clone()
    functional = torch.ops.thunderkittens.linear_attention_step_functional.default
    o, updated = functional(q, k, v, state, None, None, indices)
    assert torch.equal(state, before)
    assert torch.equal(step(q, k, v, state, state_indices=indices), o)
    assert torch.equal(updated, state)
    with pytest.raises(NotImplementedError, match="step: v must not require a gradient"):
        functional(q, k, v.requires_grad_(), state, None, None, indices)


def test_autocast_keeps_decays_and_states():
    q, k, v, state = some()
    with torch.autocast("cpu", BF16):
        o = step(q, k, v, state.clone(), log_decay=-torch.ones(1))
    want = step(*(t.to(BF16) for t in (q, k, v)), state, log_decay=-torch.ones(1))
    assert o.dtype == BF16
    assert torch.equal(o, want)


def test_refuses_what_does_not_fit():
    q, k, v, state = some()
    three = torch.zeros(3, 1, 8, 8)
    with pytest.raises(ValueError, match=r"step: state.size\(0\) must be q.size\(0\) = 2 without"):
        step(q, k, v, three)
    step(q, k, v, three, state_indices=torch.tensor([2, 0]))
    with pytest.raises(ValueError, match="step: state must have a last stride of 1, .*got strides"):
        step(q, k, v, state.mT)
    with pytest.raises(RuntimeError, match="step: state must not overlap with itself"):
        step(q, k, v, state[:1].expand(2, -1, -1, -1))
    with pytest.raises(TypeError, match="step: state must have dtype float32, got bfloat16"):
        step(q, k, v, state.bfloat16())
    with pytest.raises(ValueError, match=r"step: log_decay must have shape \[2, 1\]"):
        step(q, k, v, state, log_decay=torch.zeros(3))
    with pytest.raises(TypeError, match="state_indices must have dtype int32 or int64, got float"):
        step(q, k, v, state, state_indices=torch.zeros(2))
    with pytest.raises(ValueError, match=r"state_indices must have shape \[2\] .*got \[3\]"):
        step(q, k, v, state, state_indices=torch.zeros(3, dtype=torch.int32))
