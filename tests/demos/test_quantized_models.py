"""Models of Llama's shape whose weights have fewer bits: generate and serve with --quantize."""

import json

import generate as program
import pytest
import torch
from llamas import VOCABULARY, made
from models import quantized
from models.cache_scales import scales_of
from models.decoding import Decoder
from models.sampling import Sampling

TINY = ["--random", "tiny", "--device", "cpu", "--tokens", "6", "--prompt-tokens", "9"]


def weights_of(model) -> dict[str, torch.Tensor]:
    """What the blocks' products multiply with."""
    return {
        f"{i}.{name}": quantized.weight_of(layer)
        for i, block in enumerate(model.blocks)
        for name, layer in block.named_children()
        if isinstance(layer, quantized.QuantizedLinear)
    }


def logits_of(model, tokens) -> torch.Tensor:
    """Of a text, read at once."""
    seen = []
    inner = model.forward

    def forward(*args, **options):
        seen.append(inner(*args, **options))
        return seen[-1]

    model.forward = forward
    try:
        decoder = Decoder(model, 1, len(tokens), Sampling(0.0, 0, 1.0), ends=())
        list(decoder.generate([tokens], 1, seed=0))
    finally:
        del model.forward
    return seen[0]


@pytest.mark.parametrize("form", ["fp8", "int4"])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_it_computes_with_the_rounded_weights(kind, form):
    """As a model of floats with the same, dequantized, weights; those are near the trained ones."""
    small = made(kind)[2]
    rounded, of_floats = made.__wrapped__(kind)[2], made.__wrapped__(kind)[2]
    quantized.quantize(rounded, form)
    weights = weights_of(rounded)
    assert len(weights) == 4 * len(rounded.blocks)
    with torch.no_grad():
        for name, weight in weights.items():
            block, layer = name.split(".")
            own = getattr(of_floats.blocks[int(block)], layer).weight
            step = 2.0**-4 if form == "fp8" else 0.5 / 7  # of the largest of a row or group
            assert ((own - weight).abs() <= step * 1.01 * own.abs().amax(1, keepdim=True)).all()
            own.copy_(weight)
    tokens = torch.randint(VOCABULARY, (12,)).tolist()
    got, want = logits_of(rounded, tokens), logits_of(of_floats, tokens)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert quantized.count_parameters(rounded) == quantized.count_parameters(small)


@pytest.mark.parametrize("form", ["fp8", "int4"])
def test_a_step_moves_fewer_bytes(form, tmp_path):
    moved = {}
    for options in ([], ["--quantize", form]):
        report = tmp_path / "report.json"
        assert program.main([*TINY, *options, "--dtype", "bfloat16", "--json", str(report)]) == 0
        found = json.loads(report.read_text())
        moved[found["weights"]] = found["bytes_of_step"]
        assert found["parameters"] == 5245184
    assert moved.keys() == {"bfloat16", form}
    assert moved[form] < moved["bfloat16"]


@pytest.mark.parametrize("form", ["fp8", "int4"])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_cache_of_fp8_has_the_scales_of_the_rounded_weights(kind, form):
    rounded, of_floats = made.__wrapped__(kind)[2], made.__wrapped__(kind)[2]
    quantized.quantize(rounded, form)
    for name, weight in weights_of(rounded).items():
        block, layer = name.split(".")
        getattr(of_floats.blocks[int(block)], layer).weight.data = weight
    for got, want in zip(scales_of(rounded), scales_of(of_floats), strict=True):
        assert all(torch.equal(got[each], want[each]) for each in ("k_scale", "v_scale"))


@pytest.mark.parametrize("form", ["fp8", "int4"])
def test_weights_and_cache_of_fewer_bits(form, capsys):
    options = ["--quantize", form, "--cache-dtype", "fp8", "--dtype", "bfloat16"]
    assert program.main([*TINY, *options]) == 0
    assert f"bfloat16 with {form} weights" in capsys.readouterr().out


def test_what_int4_cannot_hold_is_refused():
    model = made("llama", intermediate_size=100)[2]
    with pytest.raises(ValueError, match="int4 needs widths that are multiples of 8, and one is 1"):
        quantized.quantize(model, "int4")


def test_compare_is_refused(capsys):
    with pytest.raises(SystemExit):
        program.main([*TINY, "--quantize", "fp8", "--compare"])
    assert "--compare needs the weights as they are" in capsys.readouterr().err
