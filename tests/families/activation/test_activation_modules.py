"""nn's activations beside torch's, and the gated MLP beside Llama's formula."""

import pytest
import torch

import thunderkittens
from thunderkittens import nn


@pytest.mark.parametrize("options", [{}, {"approximate": "tanh"}], ids=str)
def test_gelu_is_like_torchs(options):
    ours, theirs = nn.GELU(**options), torch.nn.GELU(**options)
    assert repr(ours) == repr(theirs)
    x = torch.randn(3, 8)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8)], ids=str)
def test_gated_modules_take_halves(shape):
    x = torch.randn(shape)
    gate, up = x[..., :4], x[..., 4:]
    torch.testing.assert_close(nn.SwiGLU()(x), torch.nn.functional.silu(gate) * up)
    for approximate in ("tanh", "none"):
        want = torch.nn.functional.gelu(gate, approximate=approximate) * up
        torch.testing.assert_close(nn.GEGLU(approximate)(x), want)
    assert repr(nn.GEGLU()) == "GEGLU(approximate='none')"


@pytest.mark.parametrize("kind", [nn.GELU, nn.GEGLU])
@pytest.mark.parametrize(("wrong", "error"), [("erf", ValueError), (True, TypeError)])
def test_approximate_is_one_of_torchs_names(kind, wrong, error):
    message = f'^{kind.__name__}: approximate must be "none" or "tanh", got {wrong!r}$'
    with pytest.raises(error, match=message):
        kind(wrong)


def test_sizes_are_integers():
    for wrong in (True, 8.0, None, "8"):
        with pytest.raises(TypeError, match="^GatedMLP: hidden_size must be an integer, got"):
            nn.GatedMLP(wrong, 24)
    with pytest.raises(ValueError, match="^GatedMLP: intermediate_size must be >= 0, got -1$"):
        nn.GatedMLP(8, -1)


@pytest.mark.parametrize("kind", [nn.SwiGLU, nn.GEGLU])
def test_halves_of_what_is_no_tensor(kind):
    for wrong, got in ((None, "None"), ([1.0], "list")):
        with pytest.raises(TypeError, match=f"^{kind.__name__}: x must be a tensor, got {got}$"):
            kind()(wrong)


@pytest.mark.parametrize("shape", [(), (7,), (2, 3)], ids=str)
def test_there_must_be_two_halves(shape):
    for module in (nn.SwiGLU(), nn.GEGLU()):
        name = type(module).__name__
        with pytest.raises(ValueError, match=f"^{name}: x must have an even last dimension, got"):
            module(torch.ones(shape))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("silu", torch.nn.functional.silu),
        ("gelu", torch.nn.functional.gelu),
        ("gelu_tanh", lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    ],
)
def test_gated_mlp(activation, function, bias):
    module = nn.GatedMLP(8, 24, activation, bias=bias)
    x = torch.randn(2, 3, 8)
    want = module.down_proj(function(module.gate_proj(x)) * module.up_proj(x))
    torch.testing.assert_close(module(x), want)
    module(x).sum().backward()
    assert all(p.grad is not None for p in module.parameters())
    names = {name for name, _ in module.named_parameters()}
    kinds = ("weight", "bias") if bias else ("weight",)
    assert names == {f"{p}_proj.{kind}" for p in ("gate", "up", "down") for kind in kinds}


def test_gated_mlp_compiles_and_says_what_it_is():
    module = nn.GatedMLP(8, 24, dtype=torch.bfloat16)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 8, dtype=torch.bfloat16)
    assert torch.equal(compiled(x), module(x))
    assert "activation='silu'" in repr(module)
    message = '^GatedMLP: activation must be "silu", "gelu_tanh" or "gelu", got \'relu\'$'
    with pytest.raises(ValueError, match=message):
        nn.GatedMLP(8, 24, "relu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_defaults_are_torchs(dtype):
    """At 2.5 the two gelus differ by 3e-4, which float32 and float64 show."""
    x = torch.full((4,), 2.5, dtype=dtype)
    want = torch.nn.functional.gelu(x)
    for y in (thunderkittens.gelu(x), thunderkittens.geglu(x, torch.ones_like(x)), nn.GELU()(x)):
        torch.testing.assert_close(y, want)
    torch.testing.assert_close(nn.GEGLU()(torch.cat([x, x])), want * x)
    if dtype in (torch.float32, torch.float64):
        assert not torch.allclose(
            thunderkittens.gelu(x, approximate="tanh"), want, atol=1e-4, rtol=0
        )
    dy, backward = torch.ones_like(x), torch.ops.thunderkittens
    (exact,) = torch.autograd.grad(thunderkittens.gelu(x.requires_grad_()), x, dy)
    assert torch.equal(backward.gelu_backward(dy, x), exact)
    assert torch.equal(backward.geglu_backward(dy, x, dy, [True, False])[0], exact)
