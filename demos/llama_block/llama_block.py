"""Trains one block of a modern language model: nothing but our modules and torch's matrices."""

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import thunderkittens as tk


class Block(nn.Module):
    """Attention with grouped heads, then SwiGLU, each behind an RMS norm; x: [B, S, width]."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.split, self.head_dim = (heads, kv_heads, kv_heads), width // heads
        self.norm, self.add_norm = tk.nn.RMSNorm(width, eps=1e-6), tk.nn.AddRMSNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, sum(self.split) * self.head_dim, bias=False)
        self.rotary = tk.nn.Rotary(self.head_dim, max_positions=4096)
        self.out, self.mlp = nn.Linear(width, width, bias=False), tk.nn.GatedMLP(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        """The residual and what attention and MLP add to it."""
        heads = self.qkv(self.norm(x)).unflatten(-1, (-1, self.head_dim))  # [B, S, H, D]
        q, k, v = heads.split(self.split, dim=2)  # slices, which the kernels read where they lie
        y = tk.attention(*self.rotary(q, k), v, causal=True).flatten(2)
        y, x = self.add_norm(self.out(y), x)  # the sum and its norm, in one pass
        return x + self.mlp(y)


def main(arguments: list[str] | None = None) -> int:
    """Trains on the source of Python's argparse, a byte a token; returns 1 if no loss falls."""
    parser = argparse.ArgumentParser(prog="llama_block", description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="(default: 200)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    steps, device = vars(parser.parse_args(arguments)).values()
    if steps < 1:
        parser.error(f"--steps must be at least 1, got {steps}")
    torch.manual_seed(0)
    text, loss_of = [*Path(argparse.__file__).read_bytes()], tk.nn.LinearCrossEntropyLoss()
    embedding = nn.Embedding.from_pretrained(0.02 * torch.randn(256, 128), freeze=False)
    model = nn.Sequential(embedding, Block(128, 4, 2), tk.nn.RMSNorm(128, eps=1e-6)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses, start = [], time.perf_counter()
    for step in range(1, steps + 1):
        tokens = torch.tensor([text[i : i + 65] for i in torch.randint(len(text) - 64, (8,))])
        x, targets = tokens[:, :-1].to(device), tokens[:, 1:].contiguous().to(device)
        with torch.autocast("cuda", torch.bfloat16, enabled=device != "cpu"):
            loss = loss_of(model(x), embedding.weight, targets)
        loss.backward()  # the logits were never in memory whole
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % max(1, steps // 10) == 0:
            print(f"step {step:4}  loss {loss:.3f}  {'█' * round(8 * losses[-1])}")
    rate = 8 * 64 * steps / (time.perf_counter() - start)
    print(f"{rate:,.0f} tokens/s on {device}; loss {losses[0]:.3f} → {losses[-1]:.3f}")
    return int(losses[-1] >= losses[0])
