"""nn.QuantizedLinear beside torch.nn.Linear, and what moves and converts it."""

import copy

import pytest
import torch

import thunderkittens
from tests.families.linear.quantized_cases import E4M3
from thunderkittens.nn import QuantizedLinear

FORMATS = [(E4M3, {}), ("int4", {"group_size": 32}), ("int4", {"symmetric": False})]
EACH = pytest.mark.parametrize(("form", "options"), FORMATS, ids=str)


@EACH
@pytest.mark.parametrize("bias", [False, True])
def test_it_is_a_linear_layer_of_the_rounded_weight(form, options, bias):
    linear = torch.nn.Linear(256, 24, bias)
    layer = QuantizedLinear.from_linear(linear, form, **options)
    made = thunderkittens.quantize_weight(linear.weight.detach(), form, **options)
    with torch.no_grad():
        linear.weight.copy_(thunderkittens.dequantize_weight(*made))
    x, residual = torch.randn(2, 3, 256, requires_grad=True), torch.randn(2, 3, 24)
    torch.testing.assert_close(layer(x), linear(x))
    torch.testing.assert_close(layer(x, residual=residual), linear(x) + residual)
    gradients = [torch.autograd.grad(of(x).sum(), x)[0] for of in (layer, linear)]
    torch.testing.assert_close(*gradients)
    assert layer.bias is linear.bias
    assert sum(1 for _ in layer.parameters()) == bias


@EACH
def test_its_state_is_loaded(form, options):
    layer = QuantizedLinear.from_linear(torch.nn.Linear(256, 24), form, **options)
    other = QuantizedLinear(256, 24, weight_dtype=form, **options)
    x = torch.randn(3, 256)
    assert not other(x).any()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))
    assert repr(other) == repr(layer)
    assert "in_features=256, out_features=24, bias=True, weight_dtype=" in repr(layer)


@EACH
def test_conversions_leave_the_weight_what_it_is(form, options):
    layer = QuantizedLinear.from_linear(torch.nn.Linear(256, 24), form, **options)
    before = {name: t.clone() for name, t in layer.state_dict().items()}
    layer = torch.nn.Sequential(layer).to(torch.bfloat16)[0]
    assert torch.equal(layer.weight.view(torch.uint8), before["weight"].view(torch.uint8))
    assert layer.weight.dtype == before["weight"].dtype
    assert layer.scale.dtype == (torch.float32 if form == E4M3 else torch.bfloat16)
    assert torch.equal(layer.scale, before["scale"].to(layer.scale.dtype))
    assert layer(torch.randn(3, 256).bfloat16()).dtype == layer.bias.dtype == torch.bfloat16
    empty = layer.to("meta").to_empty(device="cpu")
    assert {n: (t.dtype, t.shape) for n, t in empty.state_dict().items()} == {
        n: (t.dtype, t.shape) for n, t in layer.state_dict().items()
    }


@EACH
def test_its_weight_is_promised_to_be_constant(form, options, monkeypatch):
    linear, promised = torch.nn.Linear(256, 24), []

    def call(*args, weight_is_constant, **around):
        promised.append(weight_is_constant)
        return thunderkittens.quantized_linear(
            *args, weight_is_constant=weight_is_constant, **around
        )

    monkeypatch.setattr("thunderkittens.nn.quantized_linear.quantized_linear", call)
    layers = [
        QuantizedLinear(256, 24, weight_dtype=form, **options),
        QuantizedLinear(256, 24, weight_dtype=form, weight_is_constant=True, **options),
        QuantizedLinear.from_linear(linear, form, **options),
        QuantizedLinear.from_linear(linear, form, weight_is_constant=True, **options),
    ]
    layers.append(copy.deepcopy(layers[2]))
    layers[4].weight_is_constant = True
    x = torch.randn(3, 256)
    y = [layer(x) for layer in layers]
    assert promised == [False, True, False, True, True]
    assert torch.equal(y[2], y[3])
    assert torch.equal(y[2], y[4])


def test_sizes_and_formats_that_are_refused():
    with pytest.raises(TypeError, match="^QuantizedLinear: in_features must be an integer, got"):
        QuantizedLinear(8.0, 4, weight_dtype=E4M3)
    with pytest.raises(ValueError, match="^quantize_weight: group_size must be a multiple of 8"):
        QuantizedLinear(96, 4, weight_dtype="int4")
    with pytest.raises(ValueError, match="^quantize_weight: dtype must be torch.float8_e4m3fn or"):
        QuantizedLinear(96, 4, weight_dtype=torch.int8)


def test_it_compiles():
    layer = QuantizedLinear.from_linear(torch.nn.Linear(64, 8), E4M3)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 64)
    torch.testing.assert_close(compiled(x), layer(x))
