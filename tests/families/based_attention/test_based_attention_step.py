"""based_attention_step on the CPU (ATen backend), and what holds on every backend alike."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import thunderkittens
from tests.families.based_attention import cases as cases_of_sequences
from tests.families.based_attention import step_cases as cases
from tests.families.based_attention.step_cases import BF16, FP16, FP32, FP64, Case
from thunderkittens.testing import check_memory

step = thunderkittens.based_attention_step
ALL = [
    *cases.widths((FP32, FP64)),
    *cases.options(FP64),
    *cases.options(BF16),
    *cases.layouts(FP64),
    *cases.layouts(BF16),
    Case(2, 1, 40, 20, FP16),
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    """Right, and nothing outside the tensors is read or written."""
    inputs = cases.make(case)
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    cases.check_case(case, inputs, results)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("dtype", [FP64, BF16])
def test_goes_on_where_a_sequence_ends(normalize, dtype):
    case = cases_of_sequences.Case(2, 70, 2, 8, 16, dtype, normalize)
    q, k, v, state, sums, *_ = cases_of_sequences.make(case)
    whole, *last = cases_of_sequences.call(case, q, k, v, state, sums)
    some = (t[:, :67] for t in (q, k, v))
    _, *states = cases_of_sequences.call(case, *some, state, sums)
    for t in range(67, 70):
        o = step(
            *(x[:, t] for x in (q, k, v)),
            tuple(states) if normalize else states[0],
            normalize=normalize,
        )
        assert o.dtype == dtype
        torch.testing.assert_close(o, whole[:, t])
    torch.testing.assert_close(states, last)


def some(dtype=FP32):
    q, k, v = torch.randn(3, 2, 1, 8).to(dtype).unbind()
    return q, k, v, torch.randn(2, 1, 45, 8), 100 * torch.rand(2, 1, 45)


@pytest.mark.parametrize("which", range(5))
def test_not_differentiable(which):
    q, k, v, *states = (t.requires_grad_(i == which) for i, t in enumerate(some()))
    name = ("q", "k", "v", "state", "sums")[which]
    before = [t.detach().clone() for t in states]
    message = rf"step: {name} must not require a gradient.*no_"
    with pytest.raises(NotImplementedError, match=message):
        step(q, k, v, tuple(states))
    assert all(map(torch.equal, states, before))
    with torch.no_grad():
        assert not step(q, k, v, tuple(states)).requires_grad


def test_a_backward_notices_that_its_state_was_written():
    q, k, v, *states = some()
    for written in states:
        weight = torch.ones((), requires_grad=True)
        saved = (weight * written).sum()  # keeps it
        with torch.no_grad():
            step(q, k, v, tuple(states))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved.backward()


def test_vmap_maps_the_states_too():
    q, k, v = torch.randn(3, 4, 2, 1, 8).unbind()
    states = torch.randn(4, 2, 1, 45, 8), 100 * torch.rand(4, 2, 1, 45)
    wanted = [t.clone() for t in states]
    want = torch.stack([step(q[i], k[i], v[i], (wanted[0][i], wanted[1][i])) for i in range(4)])
    got = torch.vmap(lambda q, k, v, s, z: step(q, k, v, (s, z)))(q, k, v, *states)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(list(states), wanted)
    with pytest.raises(RuntimeError, match="step: state must be mapped"):
        torch.vmap(lambda q: step(q, k[0], v[0], (states[0][0], states[1][0])))(q)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    """Also of states that are views, of sizes that change."""

    def model(q, k, v, own, own_sums, layers, layers_sums):
        o = step(q, k, v, (own, own_sums))
        return step(q, k, o, (layers[1], layers_sums[1])), own.sum()

    torch._dynamo.reset()
    count = CompileCounterWithBackend("inductor")
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=count)
    graphs = []
    for batch in (5, 7):
        q, k, v = torch.randn(3, batch, 1, 8).unbind()
        states = [torch.randn(batch, 1, 45, 8), 100 * torch.rand(batch, 1, 45)]
        states += [torch.randn(2, batch, 1, 45, 8), 100 * torch.rand(2, batch, 1, 45)]
        runs = []
        for function in (model, compiled):
            given = [t.clone() for t in states]
            with torch.no_grad():
                runs.append([*function(q, k, v, *given), *given])
        for got, want in zip(*runs, strict=True):
            torch.testing.assert_close(got, want)
        graphs.append(count.frame_count)
    assert not dynamic or graphs[0] == graphs[1]  # one for all batches


def test_opcheck():
    op = torch.ops.thunderkittens.based_attention_step.default
    q, k, v, state, sums = some()
    torch.library.opcheck(op, (q, k, v, state, sums, 1e-12))
    torch.library.opcheck(op, (q, k, v, state, None, 1e-12, 0.5))
    functional = torch.ops.thunderkittens.based_attention_step_functional.default
    torch.library.opcheck(functional, (q, k, v, state, sums, 1e-12))
    torch.library.opcheck(functional, (q, k, v, state, None, 1e-12))


def test_autocast_keeps_states():
    q, k, v, *states = some()
    with torch.autocast("cpu", BF16):
        o = step(q, k, v, tuple(t.clone() for t in states))
    assert o.dtype == BF16
    assert torch.equal(o, step(*(t.to(BF16) for t in (q, k, v)), tuple(states)))


def test_refuses_what_does_not_fit():
    q, k, v, state, sums = some()
    with pytest.raises(ValueError, match=r"step: k must have shape \[2, 1, 8\] .*got \[2, 1, 7\]"):
        step(q, k[..., :7], v, (state, sums))
    with pytest.raises(ValueError, match=r"step: state.size\(2\) must be 45, the features of q"):
        step(q, k, v, (state[:, :, 1:], sums[..., 1:]))
    with pytest.raises(ValueError, match=r"step: state must have shape \[2, 1, Phi, 8\]"):
        step(q, k, v, (state[..., :7], sums))
    with pytest.raises(ValueError, match=r"step: sums must have shape \[2, 1, 45\]"):
        step(q, k, v, (state, sums[..., 1:]))
    with pytest.raises(TypeError, match="step: state must have dtype float32, got float16"):
        step(q, k, v, (state.half(), sums))
    with pytest.raises(TypeError, match=r"step: state must be a pair \(S, z\) .*, got None"):
        step(q, k, v, None)
    with pytest.raises(
        TypeError, match=r"state must be a pair \(S, z\) with normalize, got Tensor"
    ):
        step(q, k, v, state)
    with pytest.raises(TypeError, match="state must be a tensor without normalize, got tuple"):
        step(q, k, v, (state, sums), normalize=False)
    with pytest.raises(TypeError, match=r"state must be a pair \(S, z\) with normalize, got None"):
        step(q, k, v, (state, None))
    with pytest.raises(TypeError, match="step: normalize must be True or False, got 1"):
        step(q, k, v, (state, sums), normalize=1)
    for scale in (0.0, -1.0):
        with pytest.raises(ValueError, match="step: scale must be above 0, got"):
            step(q, k, v, (state, sums), scale=scale)
    with pytest.raises(RuntimeError, match="step: state must not overlap with itself"):
        step(q, k, v, (state[:1].expand_as(state), sums))
    with pytest.raises(RuntimeError, match="step: sums must not overlap with itself"):
        step(q, k, v, (state, sums[:1].expand_as(sums)))
