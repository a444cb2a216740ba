"""quantized_linear on the CPU, by torch: what it computes and refuses; and how weights are made."""

import pytest
import torch

import thunderkittens
from tests.families.linear import quantized_cases as cases
from tests.families.linear.cases import BF16, FP16, FP32, FP64
from tests.families.linear.quantized_cases import E4M3

quantized_linear = thunderkittens.quantized_linear


@pytest.mark.parametrize("case", cases.every(), ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check_case(case, inputs, cases.run_case(case, inputs))


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
@pytest.mark.parametrize(
    ("form", "options", "steps"),
    [(E4M3, {}, 0), ("int4", {"group_size": 32}, 7), ("int4", {"symmetric": False}, 15)],
)
def test_weights_are_rounded_to_the_nearest(dtype, form, options, steps):
    """Of e4m3 to 4 bits of the mantissa; of int4 to the nearest step, of which a group has some."""
    weight = torch.randn(24, 256).to(dtype)
    weight[3] = 0
    made = thunderkittens.quantize_weight(weight, form, **options)
    got = thunderkittens.dequantize_weight(*made).double()
    torch.testing.assert_close(got, cases.dequantized(*made), rtol=2.0**-24, atol=0)
    wide = weight.double()
    rounding = 2.0 * torch.finfo(dtype).eps  # of the scale, and of the product
    if form == E4M3:
        largest = wide.abs().amax(1, keepdim=True)
        bound = 2.0**-4 * wide.abs() + largest / 448 * 2.0**-10
    else:
        groups = wide.unflatten(1, (-1, options.get("group_size", 128)))
        low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        most = torch.maximum(high, -low) if steps == 7 else high.clamp(min=0) - low.clamp(max=0)
        step = most / steps
        # The zero is rounded, so that the ends may lie half a step outside.
        bound = (step * (0.5 if steps == 7 else 1.0)).expand_as(groups).flatten(1)
    assert ((got - wide).abs() <= bound * (1 + 16 * rounding) + rounding * wide.abs()).all()
    assert (got[3] == 0).all()


def test_int4_is_packed_in_the_documented_order():
    values = torch.arange(16).expand(3, 16)
    packed = thunderkittens.pack_int4(values)
    assert packed[0].tolist() == [0x20, 0x64, 0x31, 0x75, 0xA8, 0xEC, 0xB9, 0xFD]
    assert torch.equal(thunderkittens.unpack_int4(packed), values.to(torch.uint8))


def test_gradients_are_those_of_the_dequantized_weight():
    x = torch.randn(2, 3, 64, dtype=FP64, requires_grad=True)
    made = thunderkittens.quantize_weight(torch.randn(10, 64), "int4", group_size=32)
    weight, scale = made.weight, made.scale.double()
    got = torch.autograd.grad(quantized_linear(x, weight, scale).square().sum(), x)
    wide = thunderkittens.dequantize_weight(weight, scale)
    want = torch.autograd.grad((x @ wide.T).square().sum(), x)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(quantized_linear, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    made = thunderkittens.quantize_weight(torch.randn(12, 64), "int4", group_size=32)
    for rows in (3, 5):
        x = torch.randn(rows, 64)
        torch.testing.assert_close(compiled(x, *made), quantized_linear(x, *made))


def test_autocast_takes_its_dtype():
    x, weight = torch.randn(2, 64), torch.randn(6, 64)
    for form in (E4M3, "int4"):
        made = thunderkittens.quantize_weight(weight, form, group_size=32)
        with torch.autocast("cpu", BF16):
            assert quantized_linear(x, *made).dtype == BF16


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"weight": torch.ones(6, 32)},
            TypeError,
            "weight must have dtype float8_e4m3fn, or uint8",
        ),
        ({"weight": torch.ones(6, 8).to(E4M3)}, ValueError, r"weight.size\(1\) must be 32, got 8"),
        ({"scale": torch.ones(6).double()}, TypeError, "scale must have dtype Float with a float8"),
        ({"scale": torch.ones(5)}, ValueError, r"scale.size\(0\) must be 6, got 5"),
        ({"scale": torch.ones(6, 1)}, ValueError, r"scale must have shape \[6\] with a float8"),
        ({"zero": torch.ones(6).byte()}, ValueError, "zero must be None with a float8_e4m3fn"),
        ({"bias": torch.ones(5)}, ValueError, r"bias.size\(0\) must be 6, got 5"),
        ({"residual": torch.ones(2, 5)}, ValueError, r"residual.size\(-1\) must be 6, as y's"),
        ({"weight": torch.ones(6, 32).byte()}, ValueError, "int4, two a byte, must be 16, got 32"),
        ({"weight": torch.ones(6, 16).byte()}, ValueError, r"scale must have shape \[6, groups\]"),
        (
            {"weight": torch.ones(6, 16).byte(), "scale": torch.ones(6, 3)},
            ValueError,
            r"scale.size\(1\) must divide x.size\(-1\) 32, got 3",
        ),
        (
            {"weight": torch.ones(6, 16).byte(), "scale": torch.ones(6, 1).half()},
            TypeError,
            "scale must have dtype Float, x's, got Half",
        ),
        ({"norm": torch.ones(32)}, TypeError, r"norm must be a tuple \(weight, eps\) or None"),
    ],
)
def test_refused_calls(change, error, message):
    given = {
        "x": torch.ones(2, 32),
        "weight": torch.ones(6, 32).to(E4M3),
        "scale": torch.ones(6),
    } | change
    with pytest.raises(error, match=f"quantized_linear: .*{message}"):
        quantized_linear(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((torch.ones(4), E4M3), r"weight must be \[N, K\], got \[4\]"),
        ((torch.ones(4, 8), torch.int8), "dtype must be torch.float8_e4m3fn or"),
        ((torch.ones(4, 64), "int4"), "group_size must be a multiple of 8 that divides"),
        ((torch.full((4, 128), torch.inf), "int4"), "weight must be finite"),
    ],
)
def test_weights_that_are_refused(given, message):
    with pytest.raises(ValueError, match=f"quantize_weight: {message}"):
        thunderkittens.quantize_weight(*given)


@pytest.mark.parametrize("value", [-1, 16])
def test_numbers_that_are_no_int4_are_refused(value):
    with pytest.raises(ValueError, match="pack_int4: values must be from 0 to 15"):
        thunderkittens.pack_int4(torch.full((2, 8), value))
    with pytest.raises(ValueError, match=r"values.size\(-1\) must be a multiple of 8, got 7"):
        thunderkittens.pack_int4(torch.zeros(2, 7, dtype=torch.int64))
    with pytest.raises(TypeError, match="unpack_int4: packed must have dtype uint8, got torch.i"):
        thunderkittens.unpack_int4(torch.zeros(2, 4, dtype=torch.int32))
