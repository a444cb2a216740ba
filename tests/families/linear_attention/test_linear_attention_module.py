"""nn.LinearAttention: whole, in pieces and token by token; and beside its formula."""

import pytest
import torch
from torch.nn import functional

import thunderkittens
from thunderkittens import nn

RETNET = {"log_decay": "retention", "norm": "group", "gate": "silu"}
LIGHTNING = {
    "log_decay": "lightning",
    "layer": 1,
    "layers": 4,
    "feature_map": "silu",
    "scale": 1.0,
    "norm": "rms",
    "gate": "sigmoid",
}
MINIMAX = LIGHTNING | {"log_decay": "minimax", "map_values": True}
KINDS = {
    "plain": {},
    "RetNet": RETNET,
    "Lightning": LIGHTNING,
    "MiniMax": MINIMAX,
    "grouped, unequal, elu": {
        "num_key_heads": 2,
        "head_dim": 8,
        "value_dim": 12,
        "feature_map": "elu+1",
        "log_decay": torch.tensor([-0.1, -0.2, 0.0, -2.0]),
        "bias": True,
    },
}
EVERY = pytest.mark.parametrize("kind", KINDS)


def layer_of(kind: str, dtype=torch.float64) -> nn.LinearAttention:
    layer = nn.LinearAttention(32, 4, **KINDS[kind], dtype=dtype)
    if layer.norm_weight is not None:
        torch.nn.init.normal_(layer.norm_weight)
    return layer


def formula(layer: nn.LinearAttention, x: torch.Tensor) -> torch.Tensor:
    """As the docstring says it, token by token."""
    phi = {
        "identity": lambda t: t,
        "silu": functional.silu,
        "elu+1": lambda t: functional.elu(t) + 1,
    }
    phi = phi[layer.feature_map]
    q, k, v = phi(layer.q_proj(x)), phi(layer.k_proj(x)), layer.v_proj(x)
    v = phi(v) if layer.map_values else v
    share = layer.num_heads // layer.num_key_heads
    q, k = (t.unflatten(-1, (-1, layer.head_dim)).repeat_interleave(share, 2) for t in (q, k))
    v = v.unflatten(-1, (layer.num_heads, -1))
    decay = torch.zeros(4) if layer.log_decay is None else layer.log_decay
    state = layer.init_state(x.shape[0])
    outputs = []
    for t in range(x.shape[1]):
        state = decay.double().exp()[:, None, None] * state
        state = state + k[:, t, :, :, None] * v[:, t, :, None]
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    o = torch.stack(outputs, 1) * (layer.head_dim**-0.5 if layer.scale is None else layer.scale)
    if layer.norm == "group":
        o = functional.group_norm(o.flatten(0, 1).flatten(1), 4, eps=layer.eps).view(o.shape)
    o = o.flatten(-2)
    if layer.norm == "rms":
        o = functional.rms_norm(o, o.shape[-1:], layer.norm_weight, layer.eps)
    if layer.gate is not None:
        o = getattr(functional, layer.gate)(layer.g_proj(x)) * o
    return layer.o_proj(o)


@EVERY
def test_whole_in_pieces_and_step_by_step(kind):
    layer, x = layer_of(kind), torch.randn(2, 70, 32, dtype=torch.float64)
    want = formula(layer, x)
    torch.testing.assert_close(layer(x), want)
    state, parts = layer.init_state(2), []
    for part in (slice(0, 0), slice(0, 1), slice(1, 65), slice(65, 70)):
        before = state.clone()
        y, after = layer(x[:, part], state)
        assert torch.equal(state, before)
        state = after
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), want)
    stepped = layer.init_state(2)
    steps = [layer.step(x[:, t], stepped) for t in range(70)]
    torch.testing.assert_close(torch.stack(steps, 1), want)
    torch.testing.assert_close(stepped, state)
    assert not steps[0].requires_grad


@EVERY
def test_gradients(kind):
    layer, x = layer_of(kind), torch.randn(2, 9, 32, dtype=torch.float64, requires_grad=True)
    given = torch.randn(2, 9, 32, dtype=torch.float64)
    leaves = [x, *layer.parameters()]
    want = torch.autograd.grad(formula(layer, x), leaves, given)
    for got, exact in zip(torch.autograd.grad(layer(x), leaves, given), want, strict=True):
        torch.testing.assert_close(got, exact)


def test_decays_are_those_of_the_helpers_and_stay_float32():
    for name, want in (
        ("retention", thunderkittens.retention_log_decay(4)),
        ("lightning", thunderkittens.lightning_log_decay(4, 2, 6)),
        ("minimax", thunderkittens.minimax_log_decay(4, 2, 6)),
        (torch.tensor([-0.1, -0.3, 0.0, -1e-4]), torch.tensor([-0.1, -0.3, 0.0, -1e-4])),
    ):
        layer = nn.LinearAttention(32, 4, log_decay=name, layer=2, layers=6).bfloat16()
        assert torch.equal(layer.log_decay, want)
        assert layer(torch.randn(1, 3, 32).bfloat16()).dtype == torch.bfloat16
        in_checkpoint = isinstance(name, torch.Tensor)
        assert ("log_decay" in layer.state_dict()) == in_checkpoint
        assert torch.equal(layer.double().log_decay, want)
    with torch.device("meta"):
        layer = nn.LinearAttention(32, 4, log_decay="retention")
    assert torch.equal(
        layer.to_empty(device="cpu").log_decay, thunderkittens.retention_log_decay(4)
    )


def test_a_parameter_is_trained():
    decay = torch.nn.Parameter(torch.tensor([-0.1, -0.3, -0.5, -1.0]))
    layer = nn.LinearAttention(32, 4, log_decay=decay)
    assert "log_decay" in dict(layer.named_parameters())
    layer(torch.randn(1, 9, 32)).sum().backward()
    assert decay.grad.abs().min() > 0


def test_slots():
    layer, x = layer_of("RetNet"), torch.randn(2, 32, dtype=torch.float64)
    states = torch.randn(5, 4, 8, 8, dtype=torch.float64)
    alone = states[[3, 1]]
    want = layer.step(x, alone)
    got = layer.step(x, states, state_indices=torch.tensor([3, 1]))
    assert torch.equal(got, want)
    assert torch.equal(states[[3, 1]], alone)


@EVERY
def test_compiles(kind):
    layer, x = layer_of(kind, torch.float32), torch.randn(2, 5, 32)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))
    step = torch.compile(layer.step, fullgraph=True, backend="aot_eager")
    states = layer.init_state(2), layer.init_state(2)
    for t in range(3):
        got, want = step(x[:, t], states[0]), layer.step(x[:, t], states[1])
        torch.testing.assert_close(got, want)
    torch.testing.assert_close(*states)


def test_says_what_it_is():
    shown = repr(layer_of("MiniMax"))
    for setting in ("32, num_heads=4", "log_decay='minimax'", "layer=1, layers=4", "scale=1.0"):
        assert setting in shown
    for setting in ("map_values=True", "norm='rms'", "gate='sigmoid'", "eps=1e-05", "bias=False"):
        assert setting in shown
    assert "log_decay=[H]" in repr(layer_of("grouped, unequal, elu"))
    assert "log_decay=None" in repr(layer_of("plain"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_key_heads": 3}, ValueError, "num_heads must be a multiple of num_key_heads"),
        ({"num_key_heads": 0}, ValueError, "num_heads must be a multiple of num_key_heads"),
        ({"head_dim": 8.0}, TypeError, "head_dim must be an integer, got float"),
        ({"norm": "batch"}, ValueError, 'norm must be "group" or "rms", got'),
        ({"gate": True}, TypeError, 'gate must be "silu" or "sigmoid", got'),
        ({"feature_map": "relu"}, ValueError, 'feature_map must be "identity", "silu" or "elu'),
        ({"log_decay": "alibi"}, ValueError, 'log_decay must be "retention", "lightning" or'),
        ({"log_decay": torch.zeros(3)}, ValueError, r"log_decay must have shape \[4\]"),
        ({"log_decay": "minimax", "layer": 1}, ValueError, "layer must be >= 0 and < layers = 1"),
        ({"scale": "1"}, TypeError, "scale must be a number"),
    ],
    ids=str,
)
def test_refused(options, error, message):
    with pytest.raises(error, match=message):
        nn.LinearAttention(32, 4, **options)
