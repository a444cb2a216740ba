"""Trains one block of a modern language model: nothing but thunderkittens and torch's matrices.

    python -m demos.llama_block --steps 200

The text is the source of Python's argparse, a byte a token. Exit code 1 if the loss does not fall.
"""

import argparse
import time

import torch
from torch import Tensor, nn

import thunderkittens as tk


class Block(nn.Module):
    """Attention with grouped heads, then SwiGLU, each behind an RMS norm; x: [B, S, width]."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.split, self.head_dim = (heads, kv_heads, kv_heads), width // heads
        self.norm = tk.nn.RMSNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, sum(self.split) * self.head_dim, bias=False)
        self.rotary = tk.nn.Rotary(self.head_dim, max_positions=4096)
        self.out = nn.Linear(width, width, bias=False)
        self.add_norm = tk.nn.AddRMSNorm(width, eps=1e-6)
        self.mlp = tk.nn.GatedMLP(width, 3 * width, activation="silu")

    def forward(self, x: Tensor) -> Tensor:
        """q, k and v are slices of one product, which the kernels read where they lie."""
        heads = self.qkv(self.norm(x)).unflatten(-1, (-1, self.head_dim))  # [B, S, H, D]
        q, k, v = heads.split(self.split, dim=2)
        y = tk.attention(*self.rotary(q, k), v, causal=True).flatten(2)
        y, x = self.add_norm(self.out(y), x)  # the sum and its norm, in one pass
        return x + self.mlp(y)


class Model(nn.Module):
    """A byte's embedding, the block, and the loss through the same embedding."""

    def __init__(self, width: int = 128, heads: int = 4, kv_heads: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.block = Block(width, heads, kv_heads)
        self.norm = tk.nn.RMSNorm(width, eps=1e-6)
        self.loss = tk.nn.LinearCrossEntropyLoss()

    def forward(self, tokens: Tensor) -> Tensor:
        """The loss of tokens [B, S + 1]; its logits are never in memory whole."""
        x = self.norm(self.block(self.embedding(tokens[:, :-1])))
        return self.loss(x, self.embedding.weight, tokens[:, 1:].contiguous())


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="llama_block", description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200, help="(default: 200)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error(f"--steps must be at least 1, got {options.steps}")
    device = torch.device(options.device)
    torch.manual_seed(0)
    with open(argparse.__file__, "rb") as file:
        text = torch.tensor(list(file.read()), device=device)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses, start = [], time.perf_counter()
    for step in range(1, options.steps + 1):
        begins = torch.randint(len(text) - 64, (8, 1), device=device)
        batch = text[begins + torch.arange(65, device=device)]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
            loss = model(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % max(1, options.steps // 10) == 0:
            print(f"step {step:4}  loss {loss:.3f}  {'█' * round(8 * losses[-1])}")
    rate = len(losses) * 8 * 64 / (time.perf_counter() - start)
    print(f"{rate:,.0f} tokens/s on {device}; loss {losses[0]:.3f} → {losses[-1]:.3f}")
    return 0 if losses[-1] < losses[0] else 1


if __name__ == "__main__":
    import sys

    sys.exit(main())
