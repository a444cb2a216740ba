"""nn.RMSNorm beside torch's; AddLayerNorm and AddRMSNorm beside what they put together."""

import copy

import pytest
import torch

from thunderkittens import nn

ADDS = [nn.AddLayerNorm, nn.AddRMSNorm]


def plain(module: torch.nn.Module):
    """The module without a residual, of the same parameters."""
    kind = nn.LayerNorm if isinstance(module, nn.AddLayerNorm) else nn.RMSNorm
    other = kind(module.normalized_shape, module.eps, module.elementwise_affine)
    other.load_state_dict(module.state_dict())
    return other


@pytest.mark.parametrize("shape", [16, (16,), (4, 16)], ids=str)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("eps", [None, 1e-6])
def test_like_torch(shape, affine, eps):
    theirs = torch.nn.RMSNorm(shape, eps, affine)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours = nn.RMSNorm(shape, eps, affine)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, 2, 4, 16)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    results = [module(leaf) for module, leaf in zip((ours, theirs), inputs, strict=True)]
    torch.testing.assert_close(*results)
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    assert repr(ours) == f"{repr(theirs)[:-1]}, weight_offset=0.0, casting='llama')"


def test_offset_and_casting():
    module = nn.RMSNorm(8, weight_offset=1.0, casting="gemma")
    assert torch.equal(module.weight, torch.zeros(8))
    x = torch.randn(3, 8)
    torch.testing.assert_close(module(x), torch.nn.functional.rms_norm(x, (8,)))
    assert repr(module).endswith("weight_offset=1.0, casting='gemma')")
    with pytest.raises(ValueError, match='^RMSNorm: casting must be "llama" or "gemma", got'):
        nn.RMSNorm(8, casting="none")


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm, *ADDS])
def test_settings_are_checked_where_they_are_given(kind):
    own = kind.__name__
    for wrong in ("1e-5", True, (1e-5,)):
        with pytest.raises(TypeError, match=f"^{own}: eps must be a number, got"):
            kind(8, eps=wrong)
    with pytest.raises(TypeError, match=f"^{own}: normalized_shape must be an integer"):
        kind(True)
    assert kind(8, eps=torch.tensor(1e-5)).eps == 1e-5  # as the op takes it


@pytest.mark.parametrize("kind", ADDS)
@pytest.mark.parametrize("shape", [16, (4, 16)], ids=str)
def test_the_first_block_has_no_residual(kind, shape):
    module, x = kind(shape, dropout_p=0.5), torch.randn(3, 4, 16)
    y, total = module.eval()(x, None)
    torch.testing.assert_close(y, plain(module)(x))
    assert total.data_ptr() == x.data_ptr() and torch.equal(total, x)
    _, dropped = module.train()(x, None)
    assert 0.2 < (dropped == 0).float().mean() < 0.8
    assert torch.equal(dropped[dropped != 0], 2 * x[dropped != 0])


@pytest.mark.parametrize("kind", ADDS)
@pytest.mark.parametrize("shape", [16, (4, 16)], ids=str)
@pytest.mark.parametrize("affine", [True, False])
def test_sums(kind, shape, affine):
    module = kind(shape, elementwise_affine=affine, dropout_p=0.5).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    x, residual = torch.randn(3, 4, 16), torch.randn(3, 4, 16)
    y, total = module(x, residual)
    assert torch.equal(total, x + residual)
    torch.testing.assert_close(y, plain(module)(total))
    torch.manual_seed(0)
    _, dropped = module.train()(x, residual)
    torch.manual_seed(0)
    again = copy.deepcopy(module)(x, residual)[1]
    assert torch.equal(dropped, again)
    assert 0.2 < (dropped == residual).float().mean() < 0.8
    assert repr(module).endswith("dropout_p=0.5)")


@pytest.mark.parametrize("kind", ADDS)
def test_wrong_inputs(kind):
    name, op = kind.__name__, "add_layer_norm" if kind is nn.AddLayerNorm else "add_rms_norm"
    x = torch.randn(2, 8)
    with pytest.raises(TypeError, match=f"{name}: x must be a tensor, got None"):
        kind(8)(None, x)
    with pytest.raises(ValueError, match=rf"{op}: weight must have shape \[8\]"):
        kind(9)(x, x)
    with pytest.raises(ValueError, match=rf"{op}: residual must have shape \[2, 8\]"):
        kind(8)(x, x[:1])
    with pytest.raises(ValueError, match=rf"{name}: residual must have shape \[\*, 4, 8\]"):
        kind((4, 8))(torch.randn(2, 4, 8), x)
    with pytest.raises(TypeError, match=f"{name}: normalized_shape must be an integer"):
        kind("a")


@pytest.mark.parametrize("kind", ADDS)
def test_compiles(kind):
    torch.compiler.reset()
    module = kind(16)
    x, residual = torch.randn(3, 16), torch.randn(3, 16)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for got, want in zip(compiled(x, residual), module(x, residual), strict=True):
        assert torch.equal(got, want)
