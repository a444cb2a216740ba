"""The decays of published models against their formulas."""

import math

import pytest
import torch

import thunderkittens
from thunderkittens import lightning_log_decay, minimax_log_decay, retention_log_decay

HEADS = (1, 2, 3, 5, 8, 12, 20, 32, 40, 64, 96)
LAYERS = ((0, 1), (0, 2), (1, 2), (3, 24), (23, 24), (79, 80))


def assert_exact(got: torch.Tensor, want: list[float]) -> None:
    """The formula in double, rounded once to float32."""
    assert got.dtype == torch.float32
    assert got.shape == (len(want),)
    torch.testing.assert_close(got.double(), torch.tensor(want).double(), rtol=2**-23, atol=0)
    assert (got <= 0).all()


@pytest.mark.parametrize("heads", HEADS)
def test_retention(heads):
    assert_exact(retention_log_decay(heads), [math.log1p(-(2.0 ** (-5 - h))) for h in range(heads)])


@pytest.mark.parametrize(("layer", "layers"), LAYERS)
@pytest.mark.parametrize("heads", HEADS)
def test_lightning(heads, layer, layers):
    want = [-(8 / heads) * (1 - layer / layers) * h for h in range(heads)]
    assert_exact(lightning_log_decay(heads, layer, layers), want)


def alibi(heads: int) -> list[float]:
    """As its authors wrote it: by recursion, from powers of a first slope."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**i for i in range(heads)]
    closest = 2 ** math.floor(math.log2(heads))
    return alibi(closest) + alibi(2 * closest)[0::2][: heads - closest]


@pytest.mark.parametrize(("layer", "layers"), LAYERS)
@pytest.mark.parametrize("heads", HEADS)
def test_minimax(heads, layer, layers):
    factor = 1 + 1e-5 if layers == 1 else 1 - layer / (layers - 1) + 1e-5
    want = [-slope * factor for slope in alibi(heads)]
    assert_exact(minimax_log_decay(heads, layer, layers), want)


def test_linear_attention_takes_them():
    q = torch.randn(1, 5, 3, 8)
    for decay in (retention_log_decay(3), lightning_log_decay(3, 1, 4), minimax_log_decay(3, 1, 4)):
        assert thunderkittens.linear_attention(q, q, q, log_decay=decay).isfinite().all()
    assert retention_log_decay(3, device="meta").device.type == "meta"


def test_refused():
    with pytest.raises(ValueError, match="^retention_log_decay: heads must be >= 1, got 0$"):
        retention_log_decay(0)
    with pytest.raises(TypeError, match="^minimax_log_decay: heads must be an integer, got float"):
        minimax_log_decay(2.0, 0, 1)
    with pytest.raises(
        TypeError, match="^lightning_log_decay: layers must be an integer, got None"
    ):
        lightning_log_decay(2, 0, None)
    for layer in (-1, 4):
        message = f"^lightning_log_decay: layer must be >= 0 and < layers = 4, got {layer}$"
        with pytest.raises(ValueError, match=message):
            lightning_log_decay(2, layer, 4)
