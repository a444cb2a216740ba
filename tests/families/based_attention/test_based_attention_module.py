"""nn.BasedAttention: whole, in pieces and token by token; and beside its formula."""

import pytest
import torch

from thunderkittens import nn

KINDS = {
    "plain": {},
    "not normalised": {"normalize": False, "scale": 0.3},
    "unequal": {"feature_dim": 4, "value_dim": 12, "bias": True, "eps": 0.5},
}
EVERY = pytest.mark.parametrize("kind", KINDS)


def layer_of(kind: str, dtype=torch.float64) -> nn.BasedAttention:
    return nn.BasedAttention(32, 4, **KINDS[kind], dtype=dtype)


def formula(layer: nn.BasedAttention, x: torch.Tensor) -> torch.Tensor:
    """As the docstring says it, by the weights of all pairs of tokens."""
    q, k, v = (
        projection(x).unflatten(-1, (layer.num_heads, -1))
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    scale = layer.feature_dim**-0.5 if layer.scale is None else layer.scale
    s = scale * torch.einsum("bihd,bjhd->bhij", q, k)
    weights = (1 + s + s * s / 2).tril()
    if layer.normalize:
        weights = weights / (weights.sum(-1, keepdim=True) + layer.eps)
    return layer.o_proj(torch.einsum("bhij,bjhv->bihv", weights, v).flatten(-2))


@EVERY
def test_whole_in_pieces_and_step_by_step(kind):
    layer, x = layer_of(kind), torch.randn(2, 70, 32, dtype=torch.float64)
    want = formula(layer, x)
    torch.testing.assert_close(layer(x), want)
    state, parts = layer.init_state(2), []
    for part in (slice(0, 0), slice(0, 1), slice(1, 65), slice(65, 70)):
        before = [t.clone() for t in tensors_of(state)]
        y, after = layer(x[:, part], state)
        torch.testing.assert_close(tensors_of(state), before, rtol=0, atol=0)
        state = after
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), want)
    stepped = layer.init_state(2)
    steps = [layer.step(x[:, t], stepped) for t in range(70)]
    torch.testing.assert_close(torch.stack(steps, 1), want)
    torch.testing.assert_close(tensors_of(stepped), tensors_of(state))
    assert not steps[0].requires_grad


def tensors_of(state) -> list[torch.Tensor]:
    return [*state] if isinstance(state, tuple) else [state]


@EVERY
def test_gradients(kind):
    layer, x = layer_of(kind), torch.randn(2, 9, 32, dtype=torch.float64, requires_grad=True)
    given = torch.randn(2, 9, 32, dtype=torch.float64)
    leaves = [x, *layer.parameters()]
    want = torch.autograd.grad(formula(layer, x), leaves, given)
    for got, exact in zip(torch.autograd.grad(layer(x), leaves, given), want, strict=True):
        torch.testing.assert_close(got, exact)


def test_states_stay_float32():
    layer = nn.BasedAttention(32, 4, dtype=torch.bfloat16)
    y, state = layer(torch.randn(1, 3, 32).bfloat16(), layer.init_state(1))
    assert y.dtype == torch.bfloat16
    assert [(t.dtype, [*t.shape]) for t in state] == [
        (torch.float32, [1, 4, 153, 8]),
        (torch.float32, [1, 4, 153]),
    ]


@pytest.mark.parametrize("kind", ["plain", "not normalised"])
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
    shown = repr(layer_of("unequal"))
    for setting in ("32, num_heads=4, feature_dim=4, value_dim=12", "scale=None", "bias=True"):
        assert setting in shown
    assert "scale=0.3, normalize=False, eps=1e-12, bias=False" in repr(layer_of("not normalised"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_heads": 0}, ValueError, "num_heads must be >= 1, got 0"),
        ({"feature_dim": 8.0}, TypeError, "feature_dim must be an integer, got float"),
        ({"value_dim": -1}, ValueError, "value_dim must be >= 0, got -1"),
        ({"scale": "1"}, TypeError, "scale must be a number"),
        ({"eps": None}, TypeError, "eps must be a number, got None"),
        ({"normalize": 1}, TypeError, "normalize must be True or False, got 1"),
    ],
    ids=str,
)
def test_refused(options, error, message):
    with pytest.raises(error, match=f"BasedAttention: {message}"):
        nn.BasedAttention(32, **{"num_heads": 4, **options})
