"""nn.LayerNorm beside torch's: parameters, state, numbers."""

import copy

import numpy as np
import pytest
import torch

from thunderkittens import nn


def pair(*arguments, **options):
    """Ours and torch's, with the same parameters."""
    theirs = torch.nn.LayerNorm(*arguments, **options)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours = nn.LayerNorm(*arguments, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("shape", [16, (16,), [16], torch.Size([16]), (4, 16), (2, 4, 16)], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"elementwise_affine": False}, {"eps": 1e-2}], ids=str
)
def test_like_torch(shape, options):
    ours, theirs = pair(shape, **options)
    has_bias = theirs.bias is not None
    x = torch.randn(3, 2, 4, 16)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    results = [module(leaf) for module, leaf in zip((ours, theirs), inputs, strict=True)]
    torch.testing.assert_close(*results)
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in ours.named_parameters()] == names
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    assert repr(ours) == f"{repr(theirs).split(', bias=')[0].rstrip(')')}, bias={has_bias})"


def test_state_goes_both_ways():
    ours, theirs = pair(8)
    torch.nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(theirs.weight, ours.weight)
    with pytest.raises(RuntimeError, match="weight"):
        nn.LayerNorm(8, elementwise_affine=False).load_state_dict(theirs.state_dict())


def test_device_and_dtype():
    module = nn.LayerNorm(8, device="meta", dtype=torch.bfloat16)
    assert module.weight.is_meta
    assert module.bias.dtype == torch.bfloat16
    assert module(torch.empty(2, 8, device="meta", dtype=torch.bfloat16)).shape == (2, 8)


def test_float32_parameters_with_16_bit_inputs():
    module = nn.LayerNorm(8)
    x = torch.randn(2, 8).bfloat16()
    assert module(x).dtype == torch.bfloat16
    with torch.autocast("cpu"):
        assert module(x.float()).dtype == torch.float32


def test_wrong_shapes():
    with pytest.raises(ValueError, match=r"layer_norm: weight must have shape \[9\]"):
        nn.LayerNorm(8)(torch.randn(2, 9))
    with pytest.raises(ValueError, match=r"LayerNorm: x must have shape \[\*, 4, 8\], got \[8\]"):
        nn.LayerNorm((4, 8))(torch.randn(8))
    with pytest.raises(ValueError, match=r"LayerNorm: x must have shape \[\*, 8\], got \[2, 9\]"):
        nn.LayerNorm(8, elementwise_affine=False)(torch.randn(2, 9))
    with pytest.raises(ValueError, match="normalized_shape must have a size"):
        nn.LayerNorm(())


@pytest.mark.parametrize("shape", [8, (4, 8)], ids=str)
@pytest.mark.parametrize("affine", [True, False])
def test_what_is_no_dense_tensor(shape, affine):
    module = nn.LayerNorm(shape, elementwise_affine=affine)
    with pytest.raises(TypeError, match="^LayerNorm: x must be a tensor, got None$"):
        module(None)
    nested = torch.nested.nested_tensor([torch.randn(2, 4, 8)])
    with pytest.raises(NotImplementedError, match="^layer_norm: x must be a dense .*nested tensor"):
        module(nested)


def test_normalized_shape():
    assert nn.LayerNorm(np.int64(8)).normalized_shape == (8,)
    assert nn.LayerNorm([np.int32(4), 8]).normalized_shape == (4, 8)
    for wrong in (8.0, None, "ab", (4, 8.0)):
        message = "^LayerNorm: normalized_shape must be an integer or a sequence of integers, got "
        with pytest.raises(TypeError, match=message):
            nn.LayerNorm(wrong)
    with pytest.raises(ValueError, match=r"normalized_shape must have sizes >= 0, got \(-1,\)$"):
        nn.LayerNorm(-1, elementwise_affine=False)


def test_copies_and_compiles():
    module = nn.LayerNorm((4, 8))
    x = torch.randn(3, 4, 8)
    want = module(x)
    assert torch.equal(copy.deepcopy(module)(x), want)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), want)
