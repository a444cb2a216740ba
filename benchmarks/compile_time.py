"""How long `torch.compile` takes for a deep model of our ops, beside the same model of torch's.

    python -m benchmarks.compile_time            # 12 and 48 layers, on the GPU if there is one
    python -m benchmarks.compile_time --layers 4 --device cpu

Cold: each figure is a process of its own with a cache folder of its own, and counts from the first
call, which compiles, to the end of its backward pass. The contenders take turns; the figure is the
least of the turns.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import thunderkittens

OURS, TORCH = "thunderkittens", "torch"
WIDTH, HEADS, VOCABULARY, TOKENS = 256, 4, 512, 64


def add_norm(x: Tensor, residual: Tensor, norm: nn.LayerNorm, ours: bool) -> tuple[Tensor, Tensor]:
    """The sum, normalised and as it is."""
    if ours:
        return thunderkittens.add_layer_norm(x, residual, norm.weight, norm.bias)
    residual = x + residual
    return norm(residual), residual


class Layer(nn.Module):
    """GPT-2's, with the sum of the residual before each norm."""

    def __init__(self, ours: bool):
        super().__init__()
        self.ours = ours
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v: [B, S, H, D]."""
        if self.ours:
            return thunderkittens.attention(q, k, v, causal=True)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """x, residual: [B, S, WIDTH]."""
        h, residual = add_norm(x, residual, self.norm1, self.ours)
        q, k, v = self.qkv(h).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS).unbind(2)
        y = self.out(self.attention(q, k, v).reshape(x.shape))
        h, residual = add_norm(y, residual, self.norm2, self.ours)
        return self.down((thunderkittens.gelu if self.ours else F.gelu)(self.up(h))), residual


class Model(nn.Module):
    """Layers, a norm, and the loss."""

    def __init__(self, layers: int, ours: bool):
        super().__init__()
        self.ours = ours
        self.layers = nn.ModuleList(Layer(ours) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """x: [B, S, WIDTH]; targets: [B, S]."""
        residual = torch.zeros_like(x)
        for layer in self.layers:
            x, residual = layer(x, residual)
        logits = self.head(add_norm(x, residual, self.norm, self.ours)[0]).flatten(0, 1)
        loss = thunderkittens.cross_entropy if self.ours else F.cross_entropy
        return loss(logits, targets.flatten())


def compile_once(name: str, layers: int, device: str) -> float:
    """Seconds of the first call and its backward, in a process that has compiled nothing."""
    torch.manual_seed(0)
    model = Model(layers, name == OURS).to(device=device, dtype=torch.bfloat16)
    x = torch.randn(2, TOKENS, WIDTH, device=device, dtype=torch.bfloat16)
    targets = torch.randint(0, VOCABULARY, (2, TOKENS), device=device)
    compiled = torch.compile(model, fullgraph=True)
    start = time.perf_counter()
    compiled(x, targets).backward()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def cold(name: str, layers: int, device: str, limit: float) -> float:
    """The same in a fresh process with an empty cache; infinite where it takes too long."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "--one", name]
    command += ["--layers", str(layers), "--device", device]
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
        try:
            done = subprocess.run(
                command,
                env=os.environ | caches,
                cwd=Path(__file__).parent.parent,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return float("inf")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """0: ours takes no longer than torch's at any depth; 1: it does."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--layers", type=int, nargs="+", default=[12, 48])
    parser.add_argument("--device", choices=["cuda", "cpu"], default=found)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that one may take")
    parser.add_argument("--one", choices=[OURS, TORCH], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(compile_once(arguments.one, *arguments.layers, arguments.device)))
        return 0
    slower = False
    print(f"seconds to compile, forward and backward, cold, {arguments.device}")
    for layers in arguments.layers:
        least = {OURS: float("inf"), TORCH: float("inf")}
        for _ in range(arguments.turns):
            for name in least:
                least[name] = min(
                    least[name], cold(name, layers, arguments.device, arguments.limit)
                )
        ratio = least[OURS] / least[TORCH]
        slower |= not ratio <= 1.0
        figures = "  ".join(f"{name} {seconds:6.1f}" for name, seconds in least.items())
        print(f"{layers:3} layers: {figures}  ({ratio:.2f} ×)", flush=True)
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
