"""Trains small models that differ in one layer alone on recalling pairs, and answers step by step.

    python -m demos.linear_models --mixers linear,softmax

A sequence is pairs of a key and a value, then keys again; the model has to say the value of each.
Exit code 1 if a model recalls less than half, or says something else step by step.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import thunderkittens as tk

KEYS, VALUES = 32, 32  # symbols; those of values come after those of keys


class SoftmaxAttention(nn.Module):
    """Causal attention; its state, the keys and values so far, grows with every token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.shape = (3, heads, width // heads)
        self.qkv, self.out = (nn.Linear(width, n * width, bias=False) for n in (3, 1))

    def forward(self, x: Tensor) -> Tensor:
        """x [B, S, width] → y, the same."""
        q, k, v = self.qkv(x).unflatten(-1, self.shape).unbind(2)
        return self.out(tk.attention(q, k, v, causal=True).flatten(2))

    def init_state(self, batch: int) -> list[Tensor]:
        """k and v, [B, S, heads, head_dim], of no token."""
        return [self.qkv.weight.new_empty(batch, 0, *self.shape[1:]) for _ in "kv"]

    def step(self, x: Tensor, state: list[Tensor]) -> Tensor:
        """x [B, width] → y of that token, which joins the state."""
        q, *new = self.qkv(x).unflatten(-1, self.shape).unsqueeze(1).unbind(2)
        state[:] = (torch.cat([s.to(t.dtype), t], 1) for s, t in zip(state, new, strict=True))
        return self.out(tk.attention(q, *state, causal=True).flatten(1))


def linear(width: int, heads: int, **options: object) -> tk.nn.LinearAttention:
    """Linear attention; its state is a matrix for each head, whatever the length."""
    return tk.nn.LinearAttention(width, heads, **options)


# From width and heads to a module with forward(x), init_state(batch) and step(x, state).
MIXERS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": lambda width, heads: linear(width, heads, feature_map="elu+1", norm="group"),
    "retention": lambda width, heads: linear(
        width, heads, log_decay="retention", norm="group", gate="silu"
    ),
    "softmax": SoftmaxAttention,
}


def bytes_of(state: Tensor | list[Tensor]) -> int:
    """What a mixer remembers."""
    return sum(t.nbytes for t in ([state] if isinstance(state, Tensor) else state))


class Model(nn.Module):
    """Embedding, one mixer and one gated feed-forward layer, each behind a norm, and a head.

    The mixer sees of half of its channels the token before, so that a key and its value meet.
    """

    def __init__(self, mixer: str, width: int = 64, heads: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(KEYS + VALUES, width)
        self.norm = tk.nn.RMSNorm(width, eps=1e-6)
        self.mixer = MIXERS[mixer](width, heads)
        self.add_norm = tk.nn.AddRMSNorm(width, eps=1e-6)
        self.mlp = tk.nn.GatedMLP(width, 2 * width, activation="silu")
        self.head = nn.Linear(width, KEYS + VALUES, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, S] → logits [B, S, symbols]."""
        x = self.embedding(tokens)
        h = self.norm(x)
        before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
        return self._rest(self.mixer(self._mixed(before, h)), x)

    def init_state(self, batch: int) -> dict[str, Tensor | list[Tensor]]:
        """What `step` carries from token to token."""
        before = self.head.weight.new_zeros(batch, self.head.in_features)
        return {"before": before, "mixer": self.mixer.init_state(batch)}

    @torch.no_grad()
    def step(self, token: Tensor, state: dict[str, Tensor | list[Tensor]]) -> Tensor:
        """[B] → logits [B, symbols]; the state goes on."""
        x = self.embedding(token)
        h = self.norm(x)
        y = self.mixer.step(self._mixed(state["before"], h), state["mixer"])
        state["before"] = h
        return self._rest(y, x)

    def _mixed(self, before: Tensor, h: Tensor) -> Tensor:
        half = h.shape[-1] // 2
        return torch.cat([before[..., :half], h[..., half:]], -1)

    def _rest(self, y: Tensor, x: Tensor) -> Tensor:
        h, x = self.add_norm(y, x)  # the sum and its norm, in one pass
        return self.head(x + self.mlp(h))


def make_batch(batch: int, pairs: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens [B, 3 · pairs], pairs and then their keys in another order; targets, −100 for none."""

    def chosen(symbols: int) -> Tensor:  # `pairs` different ones for each sequence
        return torch.rand(batch, symbols, device=device).argsort(1)[:, :pairs]

    keys, values = chosen(KEYS), KEYS + torch.randint(VALUES, (batch, pairs), device=device)
    order = torch.rand(batch, pairs, device=device).argsort(1)
    tokens = torch.cat([torch.stack([keys, values], 2).flatten(1), keys.gather(1, order)], 1)
    targets = torch.full_like(tokens, -100)
    targets[:, 2 * pairs :] = values.gather(1, order)
    return tokens, targets


def autocast(device: torch.device) -> torch.autocast:
    """To bfloat16 on a GPU, where all of our ops are then kernels."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu")


def train(model: Model, steps: int, pairs: int, device: torch.device) -> None:
    """AdamW on fresh sequences."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(steps):
        tokens, targets = make_batch(64, pairs, device)
        with autocast(device):
            loss = tk.cross_entropy(model(tokens), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()


@torch.no_grad()
def examine(model: Model, pairs: int, device: torch.device) -> tuple[float, float, int]:
    """The share of values recalled at once, and step by step; and bytes of a sequence's state."""
    tokens, targets = make_batch(200, pairs, device)
    asked = targets >= 0
    state = model.init_state(len(tokens))
    with autocast(device):
        at_once = model(tokens).argmax(-1)
        stepped = torch.stack([model.step(t, state).argmax(-1) for t in tokens.unbind(1)], 1)
    accuracies = [(a == targets)[asked].double().mean().item() for a in (at_once, stepped)]
    return *accuracies, bytes_of(state["mixer"]) // len(tokens)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="linear_models", description=__doc__.split("\n")[0])
    parser.add_argument("--mixers", default=",".join(MIXERS), help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=300, help="(default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=8, help=f"to recall, at most {KEYS}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    names, device = options.mixers.split(","), torch.device(options.device)
    unknown = [name for name in names if name not in MIXERS]
    if unknown:
        parser.error(f"--mixers must be of {', '.join(MIXERS)}, got {unknown[0]}")
    if options.steps < 1 or not 1 <= options.pairs <= KEYS:
        parser.error(f"--steps must be at least 1, and --pairs in 1 … {KEYS}")
    torch.set_num_threads(1)  # the models are too small for more: they would wait for each other
    print(f"{'mixer':12}{'at once':>9}{'by steps':>10}{'state':>9}{'later':>9}{'trained':>9}")
    failed = False
    for name in names:
        torch.manual_seed(0)
        start = time.perf_counter()
        model = Model(name).to(device)
        train(model, options.steps, options.pairs, device)
        seconds = time.perf_counter() - start
        at_once, stepped, size = examine(model, options.pairs, device)
        later = examine(model, min(2 * options.pairs, KEYS), device)[2]
        print(
            f"{name:12}{at_once:9.1%}{stepped:10.1%}{size:7} B{later:7} B{seconds:7.1f} s",
            flush=True,
        )
        failed |= at_once < 0.5 or abs(at_once - stepped) > 0.01
    return int(failed)


if __name__ == "__main__":
    import sys

    sys.exit(main())
