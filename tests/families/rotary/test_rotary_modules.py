"""nn.Rotary: its tables, and that it is `rotary` with them."""

import copy
import math

import pytest
import torch

import thunderkittens
from thunderkittens import nn


@pytest.mark.parametrize("interleaved", [False, True])
def test_turns_by_the_angle_of_each_position(interleaved):
    module = nn.Rotary(4, max_positions=6, base=100.0, interleaved=interleaved)
    q, k = torch.randn(1, 3, 2, 6), torch.randn(1, 3, 1, 6)
    turned = module(q, k, offsets=2)[0]
    for token in range(3):
        for pair in range(2):
            first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 2)
            angle = (token + 2) / 100.0 ** (2 * pair / 4)
            x = torch.complex(q[0, token, :, first], q[0, token, :, second])
            want = x * complex(math.cos(angle), math.sin(angle))
            torch.testing.assert_close(turned[0, token, :, first], want.real)
            torch.testing.assert_close(turned[0, token, :, second], want.imag)
    assert torch.equal(turned[..., 4:], q[..., 4:])


def test_passes_everything_on():
    module = nn.Rotary(8, max_positions=6)
    q, k = torch.randn(5, 2, 8), torch.randn(5, 1, 8)
    given = {
        "offsets": torch.tensor([1, 0]),
        "cu_seqlens": torch.tensor([0, 2, 5]),
        "max_seqlen": 3,
    }
    want = thunderkittens.rotary(q, k, module.cos, module.sin, **given)
    got = module(q, k, inplace=True, **given)
    assert got[0] is q
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])


def test_the_tables_are_no_state():
    module = nn.Rotary(8, max_positions=6)
    assert not module.state_dict()
    assert not list(module.parameters())
    assert torch.equal(copy.deepcopy(module).sin, module.sin)
    assert repr(module) == "Rotary(8, max_positions=6, base=10000.0, interleaved=False)"


def test_tables_far_out_are_exact():
    """An angle in float32 would be off by 2⁻⁵ there."""
    module = nn.Rotary(2, max_positions=500_001)
    assert module.cos[500_000, 0] == torch.tensor(math.cos(500_000))


def test_device_and_dtype():
    module = nn.Rotary(8, 6, device="meta", dtype=torch.bfloat16)
    q = torch.empty(1, 3, 2, 8, device="meta", dtype=torch.bfloat16)
    assert module(q, q)[1].shape == q.shape
    module = module.to_empty(device="cpu").float()
    module.reset_parameters()
    assert torch.equal(module.cos, nn.Rotary(8, 6).cos)
    assert module(torch.randn(1, 3, 2, 8).bfloat16(), torch.randn(1, 3, 2, 8).bfloat16())


def test_wrong_arguments():
    with pytest.raises(ValueError, match="Rotary: dim must be even and >= 0, got 7"):
        nn.Rotary(7, 6)
    with pytest.raises(ValueError, match="Rotary: base must be above 0, got 0"):
        nn.Rotary(8, 6, base=0)
    with pytest.raises(ValueError, match=r"rotary: cos.size\(0\) must be at least 9"):
        nn.Rotary(8, 6)(torch.randn(1, 9, 2, 8), torch.randn(1, 9, 2, 8))


def test_compiles():
    module = nn.Rotary(8, 6)
    q = torch.randn(1, 3, 2, 8)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, q)[0], module(q, q)[0])
