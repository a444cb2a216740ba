"""hedgehog_attention on the CPU (ATen backend), and what holds on every backend alike."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import thunderkittens
from tests.families.hedgehog_attention import cases
from tests.families.hedgehog_attention.cases import BF16, FP16, FP32, FP64, Case, small
from thunderkittens import HedgehogState
from thunderkittens.testing import check_memory

ALL = [
    *cases.lengths(small()),
    *cases.lengths(small(FP32), blocks=(1,)),
    *cases.options(small()),
    *cases.options(small(FP32)),
    *cases.layouts(small(FP32)),
    small(features=16, head_dim=24, value_dim=1),
    Case(dtype=FP32),
    Case(dtype=BF16, length=70),
    Case(dtype=FP16, length=70),
]


def call(*tensors):
    """All that it gives, of `cases.make`'s tensors; without a state, of the first seven."""
    q, k, v, q_map, k_map, alpha, beta, *state = tensors
    y, final = thunderkittens.hedgehog_attention(
        q,
        k,
        v,
        q_map,
        k_map,
        alpha=alpha,
        beta=beta,
        initial_state=HedgehogState(*state) if state else None,
        output_final_state=True,
    )
    return y, *final


def leaves_of(case: Case):
    """The inputs, those that may have a gradient as leaves that have one."""
    inputs = [t for t in cases.make(case) if t is not None]
    return [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]


def gradients(function, leaves, given, used=range(5)):
    """Of all leaves, from those of some outputs."""
    outputs = function(*leaves)
    pairs = [(outputs[i], given[i]) for i in used if outputs[i].requires_grad]
    wanted = [t for t in leaves if t.requires_grad]
    return torch.autograd.grad(
        [t for t, _ in pairs], wanted, [d for _, d in pairs], materialize_grads=True
    )


@pytest.mark.parametrize("case", ALL, ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check_case(case, inputs, cases.run_case(case, inputs))


@pytest.mark.parametrize("case", cases.layouts(small(FP32)), ids=str)
def test_memory(case):
    """Inputs stay as they were, and nothing outside the tensors shows in the results."""
    inputs = [t for t in cases.make(case) if t is not None]
    results = check_memory(lambda *t: cases.run_case(case, t), *inputs)
    cases.check_case(case, inputs, results)


# A state, none, one of few tokens; keys that are all equal, whose maximum is a tie.
GRADIENTS = [
    small(batch=2),
    small(states=False, length=200),
    small(before=3, length=70),
    small(before=200, length=1),
    small(before=64, length=66, size=0.0),
    small(FP32, batch=2),
]


@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_gradients_are_those_of_the_definition(case):
    """Also through the maximum, whose gradient equal scores share."""
    leaves = leaves_of(case)
    given = [torch.randn_like(t) for t in cases.definition(*leaves)[:5]]
    got = gradients(call, leaves, given)
    doubles = [t.detach().double().requires_grad_() if t.requires_grad else t for t in leaves]
    want = gradients(cases.definition, doubles, [t.double() for t in given])
    # Sums of a few hundred products of a few roundings each.
    error = 1e-11 if case.dtype == FP64 else 2e-5
    for ours, theirs, leaf in zip(got, want, [t for t in leaves if t.requires_grad], strict=True):
        assert ours.dtype == leaf.dtype
        assert (ours - theirs).norm() <= error * (theirs.norm() + 1)


def test_equal_scores_share_a_gradient_in_float64():
    """Of three, each has a third, which no precision has exactly; there are 200 keys, for a part of
    the gradient that equal scores share is that of what lies before the window."""
    q, k, v, *fixed = (t for t in cases.make(small(length=200)) if t is not None)
    leaves = [t.clone().requires_grad_() for t in (torch.zeros_like(q), k, v, *fixed[:4])]
    *tensors, alpha, beta = leaves
    ours = thunderkittens.hedgehog_attention(*tensors, alpha=alpha, beta=beta)
    theirs = cases.definition(*leaves)[0]
    dy = torch.randn_like(ours)
    for got, want in zip(
        torch.autograd.grad(ours, leaves, dy), torch.autograd.grad(theirs, leaves, dy), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("used", range(5))
def test_gradient_of_one_output_alone(used):
    leaves = leaves_of(small(batch=2))
    given = [torch.randn_like(t) for t in call(*leaves)[:5]]
    got = gradients(call, leaves, given, [used])
    torch.testing.assert_close(got, gradients(cases.definition, leaves, given, [used]))


@pytest.mark.parametrize("which", range(11))
def test_gradient_of_one_input_alone(which):
    leaves = leaves_of(small())
    given = [torch.randn_like(t) for t in call(*leaves)[:5]]
    want = gradients(call, leaves, given)[which]
    alone = [t.detach().requires_grad_(i == which) for i, t in enumerate(leaves[:11])]
    (got,) = gradients(call, [*alone, leaves[11]], given)
    torch.testing.assert_close(got, want)


def test_gradcheck():
    case = small(length=66, heads=1, head_dim=2, value_dim=1, features=2)
    *leaves, length = leaves_of(case)
    assert torch.autograd.gradcheck(lambda *t: call(*t, length)[:5], leaves, fast_mode=True)


@pytest.mark.parametrize("at", [0, 64, 128, 256])
@pytest.mark.parametrize("states", [False, True])
def test_a_sequence_resumes_from_its_state(at, states):
    case = small(length=300, batch=2, states=states)
    q, k, v, *fixed = [t for t in cases.make(case) if t is not None]
    whole = call(q, k, v, *fixed)
    first = call(*(t[:, :at] for t in (q, k, v)), *fixed)
    second = call(*(t[:, at:] for t in (q, k, v)), *fixed[:4], *first[1:])
    torch.testing.assert_close(torch.cat([first[0], second[0]], 1), whole[0])
    for got, want in zip(second[1:], whole[1:], strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("at", [1, 63, 100])
def test_a_state_does_not_depend_on_where_it_was_cut(at):
    q, k, v, *fixed = [t for t in cases.make(small(length=150, states=False)) if t is not None]
    whole = call(q, k, v, *fixed)
    first = call(*(t[:, :at] for t in (q, k, v)), *fixed)
    second = call(*(t[:, at:] for t in (q, k, v)), *fixed, *first[1:])
    for got, want in zip(second[1:], whole[1:], strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("sizes", [(0, 5, 2), (2, 0, 2), (1, 3, 0)], ids=str)
def test_no_tokens(sizes):
    """The state passes through, and so does its gradient."""
    batch, length, heads = sizes
    leaves = leaves_of(small(batch=batch, length=length, heads=heads))
    outputs = call(*leaves)
    assert outputs[0].shape == (batch, length, heads, 6)
    outputs[1].sum().backward()
    assert leaves[0].grad.shape == leaves[0].shape
    if length == 0:
        for got, given in zip(outputs[1:], leaves[7:], strict=True):
            assert torch.equal(got, given)
        assert torch.equal(leaves[7].grad, torch.ones_like(leaves[7]))


@pytest.mark.parametrize(("dynamic", "states"), [(False, False), (True, True)])
def test_compiles_without_a_break(dynamic, states):
    case = small(FP32, batch=2, states=states)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(call, backend=counter, fullgraph=True, dynamic=dynamic)
    leaves = leaves_of(case)
    given = [torch.randn_like(t) for t in call(*leaves)[:5]]
    for want, got in zip(call(*leaves), compiled(*leaves), strict=True):
        torch.testing.assert_close(got, want)
    want, got = (gradients(function, leaves, given) for function in (call, compiled))
    torch.testing.assert_close(got, want)
    assert counter.frame_count == 1


def test_opcheck():
    q, k, v, q_map, k_map, alpha, beta, kv_state, k_state, *_ = leaves_of(
        small(FP32, length=69, before=64)
    )
    first = torch.tensor([3])
    for op in ("hedgehog_attention", "hedgehog_attention_forward"):
        function = getattr(torch.ops.thunderkittens, op).default
        rest = (k, v, q_map, k_map, alpha, beta, kv_state, k_state, first)
        torch.library.opcheck(function, (q[:, :5].detach().requires_grad_(), *rest))


def test_autocast_keeps_weights_and_states():
    inputs = cases.make(small(FP32))
    with torch.autocast("cpu", BF16):
        outputs = call(*inputs)
    assert [t.dtype for t in outputs[:4]] == [BF16, FP32, FP32, FP32]
    want = call(
        *(t.to(BF16) for t in inputs[:5]),
        *inputs[5:9],
        *(t.to(BF16) for t in inputs[9:11]),
        inputs[11],
    )
    assert torch.equal(outputs[0], want[0])


def test_refuses_what_does_not_fit():
    q, k, v, *fixed = cases.make(small(FP32, states=False))[:7]
    with pytest.raises(ValueError, match=r"hedgehog_attention: k.size\(1\) must be 130 .*got 129"):
        call(q, k[:, 1:], v[:, 1:], *fixed)
    with pytest.raises(
        ValueError, match=r"v must have shape \[1, 130, 2, E\].*got \[1, 129, 2, 6\]"
    ):
        call(q, k, v[:, 1:], *fixed)
    with pytest.raises(TypeError, match="hedgehog_attention: alpha must have dtype float32"):
        call(q, k, v, *fixed[:2], fixed[2].half(), fixed[3])
    with pytest.raises(ValueError, match=r"k_map must have shape \[2, 8, 4\].*got \[2, 8, 3\]"):
        call(q, k, v, fixed[0], fixed[1][..., 1:], *fixed[2:])
    _, *state = call(q, k, v, *fixed)
    with pytest.raises(ValueError, match=r"kv_state.size\(2\) must be 8 .*got 7"):
        call(q, k, v, *fixed, state[0][:, :, 1:], state[1][:, :, 1:], *state[2:])
