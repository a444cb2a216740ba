"""The block's formula, that it learns, and that every demo runs as a module."""

import runpy
import sys
from pathlib import Path

import llama_block as program
import pytest
import torch
from torch.nn import functional


def plain(block, x):
    """The block with torch's own functions."""

    def norm(x, weight):
        return functional.rms_norm(x, (64,), weight, 1e-6)

    def turned(t):
        cos, sin = (
            table[: t.shape[2]].repeat(1, 2) for table in (block.rotary.cos, block.rotary.sin)
        )
        return t * cos + torch.cat((-t[..., 8:], t[..., :8]), -1) * sin

    q, k, v = block.qkv(norm(x, block.norm.weight)).split((64, 32, 32), dim=-1)
    q, k, v = (t.unflatten(-1, (-1, 16)).transpose(1, 2) for t in (q, k, v))
    options = {"is_causal": True, "enable_gqa": True}
    y = functional.scaled_dot_product_attention(turned(q), turned(k), v, **options)
    x = x + block.out(y.transpose(1, 2).flatten(2))
    h, mlp = norm(x, block.add_norm.weight), block.mlp
    return x + mlp.down_proj(functional.silu(mlp.gate_proj(h)) * mlp.up_proj(h))


@torch.no_grad()
def test_the_block_is_its_formula():
    block, x = program.Block(width=64, heads=4, kv_heads=2), torch.randn(2, 7, 64)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    expected = plain(block, x)
    # Sums of up to 192 products, five layers of them, in float32: far below 1e-4 of their size.
    assert (block(x) - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_it_has_the_length_that_its_readme_says():
    assert len(Path(program.__file__).read_text().splitlines()) <= 60


def test_it_learns(capsys):
    assert program.main(["--steps", "10", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "step   10  loss" in printed and "tokens/s on cpu" in printed
    with pytest.raises(SystemExit):
        program.main(["--steps", "0"])


@pytest.mark.parametrize(
    "demo",
    ["generate", "train_gpt", "llama_block", "linear_models", "lolcats", "custom_kernel"],
)
def test_each_demo_is_a_module(demo, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [demo, "--help"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module(f"demos.{demo}", run_name="__main__", alter_sys=True)
    assert caught.value.code == 0 and "usage: " in capsys.readouterr().out
