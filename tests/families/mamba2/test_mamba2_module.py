"""nn.Mamba2 beside its definition, token by token in float64; its states and its parameters."""

import pytest
import torch
import torch.nn.functional as F

from tests.families.mamba2 import cases
from tests.families.mamba2.cases import BF16, FP64
from thunderkittens import nn

KINDS = (
    {},
    {"ngroups": 2, "bias": True},
    {"rmsnorm": False, "conv_bias": False},
    {"dt_limit": (0.005, 0.05), "d_conv": 2},
)
PARAMETERS = {  # of mamba_ssm's
    "A_log": (4,),
    "D": (4,),
    "dt_bias": (4,),
    "in_proj.weight": (2 * 32 + 2 * 24 + 4, 16),
    "conv1d.weight": (32 + 2 * 24, 1, 4),
    "conv1d.bias": (32 + 2 * 24,),
    "norm.weight": (32,),
    "out_proj.weight": (16, 32),
}


def make(dtype=FP64, **options) -> nn.Mamba2:
    layer = nn.Mamba2(16, d_state=24, headdim=8, dtype=dtype, **options)
    for parameter in layer.parameters():  # also those that begin with ones
        torch.nn.init.normal_(parameter, std=0.3)
    return layer


def definition(layer: nn.Mamba2, u):
    """The layer's result, from its parameters and the recurrence of the op's tests."""
    batch, length, _ = u.shape
    heads, groups, state = layer.nheads, layer.ngroups, layer.d_state
    z, xBC, dt = layer.in_proj(u).split([32, 32 + 2 * groups * state, heads], -1)
    taps = layer.conv1d.weight.shape[-1]
    padded = F.pad(xBC, (0, 0, taps - 1, 0))
    bias = 0 if layer.conv1d.bias is None else layer.conv1d.bias
    xBC = bias + sum(padded[:, i : i + length] * layer.conv1d.weight[:, 0, i] for i in range(taps))
    x, B, C = F.silu(xBC).split([32, groups * state, groups * state], -1)
    x, B, C = (
        x.view(batch, length, heads, 8),
        *(t.view(batch, length, groups, state) for t in (B, C)),
    )
    case = cases.Case(limit=layer.dt_limit or (0.0, float("inf")))
    A = -layer.A_log.exp()
    y, _ = cases.recurrence(case, x, dt, A, B, C, layer.D, None, layer.dt_bias, None)
    y = y.flatten(-2) * F.silu(z)
    if layer.norm is not None:
        parts = y.unflatten(-1, (groups, -1))
        parts = parts / (parts.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        y = parts.flatten(-2) * layer.norm.weight
    return layer.out_proj(y)


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_against_the_definition(options):
    layer, u = make(**options), torch.randn(2, 9, 16, dtype=FP64, requires_grad=True)
    got, want = layer(u), definition(layer, u)
    torch.testing.assert_close(got, want)
    leaves, d_out = [u, *layer.parameters()], torch.randn_like(want)
    found = (torch.autograd.grad(y, leaves, d_out) for y in (got, want))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("options", KINDS, ids=str)
@torch.no_grad()
def test_a_sequence_in_parts_and_steps(options):
    layer, u = make(**options), torch.randn(2, 9, 16, dtype=FP64)
    state = layer.init_state(2)
    parts = [layer(u[:, :1], state), layer(u[:, 1:6], state)]
    parts += [layer.step(u[:, t], state).unsqueeze(1) for t in range(6, 9)]
    torch.testing.assert_close(torch.cat(parts, 1), layer(u))


def test_parameters_are_those_of_mamba_ssm():
    layer = nn.Mamba2(16, d_state=24, headdim=8)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == PARAMETERS
    steps = F.softplus(layer.dt_bias)
    assert steps.min() >= 0.001 * (1 - 1e-4)
    assert steps.max() <= 0.1 * (1 + 1e-4)
    assert (layer.A_log.exp() >= 1).all()
    assert (layer.A_log.exp() <= 16).all()


@torch.no_grad()
def test_in_16_bits():
    layer, u = make(BF16), torch.randn(2, 9, 16).to(BF16)
    state = layer.init_state(2)
    assert [t.dtype for t in state] == [BF16, torch.float32]
    whole = layer(u)
    steps = torch.stack([layer.step(u[:, t], state) for t in range(9)], 1)
    assert whole.dtype == steps.dtype == BF16
    assert (steps - whole).norm() <= 0.05 * whole.norm()


def test_refuses_sizes_that_do_not_divide():
    with pytest.raises(ValueError, match="must be a multiple of headdim . ngroups = 24, got 32"):
        nn.Mamba2(16, headdim=24)
