"""hedgehog_attention_step and the module on the CPU; the kernel in the simulator."""

import pytest
import torch

import thunderkittens
from tests.families.hedgehog_attention import cases, steps
from tests.families.hedgehog_attention.cases import BF16, FP16, FP32, FP64, Case, small
from tests.tools.in_simulator import check_no_races, needs_race_mode, needs_simulator
from thunderkittens import _C, HedgehogState
from thunderkittens.testing import check_memory

ON_TORCH = [
    small(length=70, before=0),
    small(length=5, before=60, batch=2),
    small(length=3, before=64),
    small(FP32, length=5, before=1000, batch=2),
    small(FP16, length=3),
    Case(dtype=BF16, length=2),
]
IN_KERNEL = [
    Case(length=3, before=62, batch=2, heads=2),
    Case(length=2, before=0, heads=1, dtype=FP16),
    Case(length=2, heads=3, dtype=FP32, layout="transposed"),
    small(FP32, length=70, before=0, layout="stepped"),
    Case(length=2, head_dim=200, value_dim=256, features=128, heads=1),
    Case(length=1, head_dim=1, value_dim=1, features=1, heads=1, dtype=FP32),
    # Rows that are vectors, of the widest heads and of narrower ones.
    Case(length=3, head_dim=64, value_dim=40, features=24, dtype=FP16, before=62, batch=2),
    Case(length=2, head_dim=72, value_dim=64, features=32, heads=3),
    Case(length=2, head_dim=60, value_dim=64, features=28, dtype=FP32, before=63),
    # And those that are none.
    Case(length=3, head_dim=60, value_dim=64, features=32, before=62, batch=2),
]


def changes(case, *tensors):
    """What `steps.run` gives of copies."""
    return steps.run(list(tensors[:3]), list(tensors[3:7]), HedgehogState(*tensors[7:]))


@pytest.mark.parametrize("case", ON_TORCH, ids=str)
def test_against_float64(case):
    tokens, fixed, state = steps.make(case)
    steps.check(case, tokens, fixed, state, steps.run(tokens, fixed, state))


@needs_simulator
@pytest.mark.parametrize("case", IN_KERNEL, ids=str)
def test_kernel_against_float64(case, monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    tokens, fixed, state = steps.make(case)
    before = _C.launch_counts()["hedgehog_attention_step"]
    with thunderkittens.backend("simulator"):
        results = check_memory(lambda *t: changes(case, *t), *tokens, *fixed, *state)
    assert _C.launch_counts()["hedgehog_attention_step"] > before
    steps.check(case, tokens, fixed, state, results)


@needs_simulator
@pytest.mark.parametrize("width", [64, 60])
def test_places_of_no_token_are_not_read(width):
    """What is in them before they are filled may be anything."""
    case = Case(length=2, before=5, head_dim=width, value_dim=width, features=24, heads=1)
    tokens, fixed, state = steps.make(case)
    for cache in (state.k_cache, state.v_cache):
        cache[:, 5:] = torch.nan
    with thunderkittens.backend("simulator"):
        y, kv_state, *_ = steps.run(tokens, fixed, state)
    for cache in (state.k_cache, state.v_cache):
        cache[:, 5:] = 0
    want, _, want_kv, _ = steps.definition(tokens, fixed, state)
    torch.testing.assert_close(y.double(), want, rtol=2**-8, atol=2**-8)
    torch.testing.assert_close(kv_state.double(), want_kv, rtol=1e-5, atol=1e-5)


@needs_race_mode
@pytest.mark.parametrize("width", [128, 100])
def test_no_races(width):
    tokens, fixed, state = steps.make(Case(length=2, before=63, heads=1, head_dim=width))
    check_no_races(lambda: steps.run(tokens, fixed, state))


def test_decodes_after_a_whole_sequence():
    """Of at most 64 tokens, both see all by softmax; the states agree beyond."""
    for seq in (40, 200):
        case = small(length=seq + 20, states=False, batch=2)
        q, k, v, *fixed = (t for t in cases.make(case) if t is not None)
        weights = {"alpha": fixed[2], "beta": fixed[3], "output_final_state": True}
        whole, final = thunderkittens.hedgehog_attention(q, k, v, *fixed[:2], **weights)
        _, state = thunderkittens.hedgehog_attention(
            *(t[:, :seq] for t in (q, k, v)), *fixed[:2], **weights
        )
        y, *stepped = steps.run([t[:, seq:] for t in (q, k, v)], fixed, state)
        if seq + 20 <= 64:
            torch.testing.assert_close(y, whole[:, seq:])
        for got, want in zip(stepped, final, strict=True):
            torch.testing.assert_close(got, want)


def test_begins_with_nothing():
    case = small(length=66, states=False)
    q, k, v, *fixed = (t for t in cases.make(case) if t is not None)
    _, state = thunderkittens.hedgehog_attention(
        *(t[:, :0] for t in (q, k, v)),
        *fixed[:2],
        alpha=fixed[2],
        beta=fixed[3],
        output_final_state=True,
    )
    assert not any(t.any() for t in state)
    y, *_ = steps.run([q, k, v], fixed, state)
    assert y.isfinite().all()


def test_compiles_and_counts_versions():
    tokens, fixed, state = steps.make(small(FP32, length=1, before=64))
    want = steps.run(tokens, fixed, state)
    first = [t[:, 0] for t in tokens]

    def call(*tensors):
        return thunderkittens.hedgehog_attention_step(
            *tensors[:5],
            alpha=tensors[5],
            beta=tensors[6],
            state=HedgehogState(*tensors[7:]),
        )

    mine = [t.clone() for t in state]
    versions = [t._version for t in mine]
    y = torch.compile(call, backend="aot_eager", fullgraph=True)(*first, *fixed, *mine)
    torch.testing.assert_close([y.unsqueeze(1), *mine], want)
    assert all(t._version > v for t, v in zip(mine, versions, strict=True))
    mine = [t.clone() for t in state]
    versions = [t._version for t in mine]
    call(*first, *fixed, *mine)
    assert all(t._version > v for t, v in zip(mine, versions, strict=True))


@pytest.mark.parametrize("form", ["in place", "functional"])
def test_autocast_keeps_caches_and_states(form):
    """What is written in place cannot be a copy."""
    tokens, fixed, state = steps.make(small(BF16, length=1, before=64))
    want = steps.run(tokens, fixed, state)
    own = [state.k_cache, state.v_cache, state.kv_state, state.k_state, state.length]
    own = [t.clone() for t in own]
    others = [t.float() for t in (*(t[:, 0] for t in tokens), *fixed)]
    with torch.autocast("cpu", BF16):
        if form == "in place":
            y = torch.ops.thunderkittens.hedgehog_attention_step(*own, *others)
        else:
            y, *own = torch.ops.thunderkittens.hedgehog_attention_step_functional(*own, *others)
    k_cache, v_cache, kv_state, k_state, length = own
    results = [y.unsqueeze(1), kv_state, k_state, k_cache, v_cache, length]
    torch.testing.assert_close(results, want, rtol=0, atol=0)


def test_compiled_states_may_be_views():
    """Of one tensor of all layers, of sizes that change: Inductor loses where one begins."""

    def call(*tensors):
        return thunderkittens.hedgehog_attention_step(
            *tensors[:5],
            alpha=tensors[5],
            beta=tensors[6],
            state=HedgehogState(*(t[1] for t in tensors[7:])),
        )

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True)
    for batch in (2, 3):
        tokens, fixed, state = steps.make(small(FP32, length=1, before=64, batch=batch))
        layers = [torch.stack([torch.zeros_like(t), t]) for t in state]
        runs = []
        for function in (call, compiled):
            own = [t.clone() for t in layers]
            runs.append([function(*(t[:, 0] for t in tokens), *fixed, *own), *own])
        torch.testing.assert_close(*reversed(runs))


def test_refuses_what_does_not_fit():
    tokens, fixed, state = steps.make(small(FP32, length=1))
    q, k, v = (t[:, 0] for t in tokens)
    weights = {"alpha": fixed[2], "beta": fixed[3]}

    def call(q, state):
        return thunderkittens.hedgehog_attention_step(q, k, v, *fixed[:2], **weights, state=state)

    with pytest.raises(NotImplementedError, match="hedgehog_attention_step: q must not require"):
        call(q.clone().requires_grad_(), state)
    with pytest.raises(ValueError, match=r"hedgehog_attention_step: k_cache.size\(1\) must be 64"):
        call(q, state._replace(k_cache=state.k_cache[:, 1:], v_cache=state.v_cache[:, 1:]))
    with pytest.raises(RuntimeError, match="kv_state must not overlap with itself"):
        call(q, state._replace(kv_state=state.kv_state[:, :1].expand(-1, 2, -1, -1)))
    with pytest.raises(ValueError, match=r"kv_state.size\(2\) must be 8"):
        call(q, state._replace(kv_state=state.kv_state[:, :, 1:], k_state=state.k_state[:, :, 1:]))


@pytest.mark.parametrize("affine", [False, True])
def test_module(affine):
    module = thunderkittens.nn.HedgehogAttention(2, 8, 4, affine=affine, dtype=FP64)
    alpha, beta = module.weights()
    torch.testing.assert_close(beta, torch.full((2,), 0.1, dtype=FP64))
    torch.testing.assert_close(alpha, torch.full((2,), 0.9 if affine else 1.0, dtype=FP64))
    q, k, v, *_ = cases.make(small(length=130))
    y, state = module(q, k, v, output_final_state=True)
    want = thunderkittens.hedgehog_attention(
        q, k, v, module.q_map, module.k_map, alpha=alpha, beta=beta
    )
    torch.testing.assert_close(y, want)
    y.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    token = [t[:, 0] for t in (q, k, v)]
    assert module.step(*token, state).shape == (1, 2, 6)
    assert int(state.length) == 131
    assert "2, head_dim=8, features=4" in repr(module)
