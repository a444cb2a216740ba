"""mamba2_step on the CPU (ATen backend), and what holds on every backend alike."""

import pytest
import torch

import thunderkittens
from tests.families.mamba2 import cases, step_cases
from tests.families.mamba2.cases import FP32, FP64, Case
from tests.families.mamba2.step_cases import StepCase

ALL = [
    *step_cases.options(FP64),
    *step_cases.options(),
    *step_cases.widths((FP32,)),
    StepCase(2, 2, 1, 16, 300),
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    inputs = step_cases.make(case)
    given = [t if t is None or i != 5 else t.clone() for i, t in enumerate(inputs)]
    step_cases.check(case, inputs, step_cases.run(case, given))


def test_continues_a_sequence():
    """Its state is the final one of mamba2, and the tokens' y are the same."""
    case = Case(2, 70, 4, 2, 8, 16, FP64, z=True)
    x, dt, A, B, C, D, z, bias, initial, *_ = cases.make(case)
    options = cases.keywords(case, D, z, bias, initial)
    y, last = thunderkittens.mamba2(x, dt, A, B, C, **options)
    state = initial.clone()
    for t in range(case.length):
        token = [each[:, t] for each in (x, dt, B, C, z)]
        got = thunderkittens.mamba2_step(
            *(*token[:2], A, *token[2:4], state),
            D=D,
            z=token[4],
            dt_bias=bias,
            dt_softplus=True,
        )
        torch.testing.assert_close(got, y[:, t])
    torch.testing.assert_close(state, last)


def test_no_tokens():
    x, A, state = torch.zeros(0, 2, 8), -torch.ones(2), torch.zeros(3, 2, 8, 16)
    B, indices = torch.zeros(0, 1, 16), torch.zeros(0, dtype=torch.int64)
    y = thunderkittens.mamba2_step(x, x[..., 0], A, B, B, state, state_indices=indices)
    assert y.shape == x.shape


def test_counts_versions():
    """What autograd has saved of a state that is then updated is not taken for what it was."""
    case = StepCase(dtype=FP32)
    inputs = step_cases.make(case)
    before = inputs[5]._version
    step_cases.run(case, inputs)
    assert inputs[5]._version == before + 1


def test_compiles_without_a_break():
    case = StepCase(dtype=FP32, indices=torch.int64)
    x, dt, A, B, C, state, *_, indices = step_cases.make(case)

    def call(x, dt, state):
        step = thunderkittens.mamba2_step
        y = step(x * 2, dt, A, B, C, state, dt_softplus=True, state_indices=indices)
        return y + 1

    results = []
    for function in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
        own = state.clone()
        results.append((function(x, dt, own), own))
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


def test_compiled_states_may_be_views():
    """Of one tensor of all layers, of sizes that change: Inductor loses where one begins."""

    def call(x, dt, A, B, layers):
        return thunderkittens.mamba2_step(x, dt, A, B, B, layers[1])

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True)
    for batch in (3, 5):
        x, dt, A = torch.randn(batch, 4, 16), torch.rand(batch, 4), -torch.rand(4)
        B, layers = torch.randn(batch, 1, 8), torch.randn(2, batch, 4, 16, 8)
        runs = []
        for function in (call, compiled):
            own = layers.clone()
            runs.append((function(x, dt, A, B, own), own))
        for want, got in zip(*runs, strict=True):
            torch.testing.assert_close(got, want)


def test_refuses_what_does_not_fit():
    x, dt, A = torch.zeros(2, 4, 8), torch.zeros(2, 4), torch.zeros(4)
    B, state = torch.zeros(2, 1, 16), torch.zeros(2, 4, 8, 16)
    step = thunderkittens.mamba2_step
    with pytest.raises(NotImplementedError, match="mamba2_step: x must not require a gradient"):
        step(x.clone().requires_grad_(), dt, A, B, B, state)
    with pytest.raises(ValueError, match=r"mamba2_step: state.size\(0\) must be x.size\(0\) = 2"):
        step(x, dt, A, B, B, torch.zeros(3, 4, 8, 16))
    with pytest.raises(RuntimeError, match="mamba2_step: state must not overlap with itself"):
        step(x, dt, A, B, B, torch.zeros(1, 4, 8, 16).expand(2, 4, 8, 16))
    with pytest.raises(TypeError, match="mamba2_step: state must have dtype float32"):
        step(x, dt, A, B, B, state.half())
