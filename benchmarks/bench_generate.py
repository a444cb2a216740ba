"""Text from Llama-3.1-8B's shape with random weights, bf16: prompts read, then a token at a time.

Runs `python -m demos.generate` and takes its figures, as its users see them: what passes on the
host from a prompt's tokens to the first new ones, and from token to token. Ours and transformers'
own loop (eager, torch's attention, a dynamic cache) take the likeliest tokens, of the same weights
in one process, and must agree on them up to ties; "ours, drawn" is a process of its own, whose
tokens are drawn with the command's temperature and top-p.

Minimum bytes of a step: the weights, and keys and values up to its token. FLOPs of a prompt: 2 a
token and weight of the blocks' products, attention under a causal mask, and the vocabulary's
product for its last token.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import harness
from benchmarks.harness import OURS, MissingPeer, Result, Timer, WrongResult

ROOT = Path(__file__).parents[1]
SHAPES = ROOT / "demos" / "models" / "llama_shapes.json"
SHAPE = "llama-3.1-8b"
DRAWN = "ours, drawn"
PEER = "transformers"
NOTE = """\
`python -m demos.generate --random llama-3.1-8b` with `--batch` and `--prompt-tokens` as below,
[the benchmark](bench_generate.py) says how; weights are random. "transformers" is its eager model
with torch's attention and a dynamic cache; what is checked here is that both choose the same
tokens, up to ties."""


class Texts(NamedTuple):
    """How many texts, the tokens of each one's prompt, and how many follow."""

    count: int
    prompt: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.count} {'text' if self.count == 1 else 'texts'} x {self.prompt:,} tokens"


CASES = (Texts(1, 1024, 129), Texts(16, 1024, 65), Texts(1, 7936, 65))


def generated(texts: Texts, *options: str) -> dict[str, Any]:
    """What `demos.generate --json` says of a run."""
    words = ["--random", SHAPE, "--device", harness.DEVICE, "--dtype", "bfloat16", "--ignore-end"]
    for name, value in zip(("batch", "prompt-tokens", "tokens"), texts, strict=True):
        words += [f"--{name}", str(value)]
    run = subprocess.run(
        [sys.executable, "-m", "demos.generate", *words, *options, "--json", "-"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    last = (run.stderr.strip().splitlines() or ["nothing was said"])[-1]
    if run.returncode == 1 and run.stdout:
        raise WrongResult(f"generate {texts}: {last}")
    if run.returncode != 0:
        raise MissingPeer(f"demos.generate ended with {run.returncode}: {last}")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def prompt_flops(texts: Texts) -> int:
    """Of all prompts."""
    shape = json.loads(SHAPES.read_text())[SHAPE]
    width, layers, dim = (shape[name] for name in ("hidden_size", "num_hidden_layers", "head_dim"))
    heads, key_heads = shape["num_attention_heads"], shape["num_key_value_heads"]
    projections = 2 * (heads + key_heads) * dim * width
    block = projections + 3 * width * shape["intermediate_size"]
    attention = 2 * heads * dim * texts.prompt**2  # q kᵀ and p v, half of each
    vocabulary = 2 * width * shape["vocab_size"]
    return int(texts.count * (layers * (2 * block * texts.prompt + attention) + vocabulary))


def measure(timer: Timer, quick: bool = False) -> Iterator[Result]:
    """Prompts and steps of each case; `quick` takes the first."""
    for texts in CASES[: 1 if quick else None]:
        both, drawn = generated(texts, "--compare"), generated(texts)
        sides = {OURS: both["thunderkittens"], DRAWN: drawn["thunderkittens"]}
        sides[PEER] = both["transformers"]
        step = {name: side["step_ms"] / 1e3 for name, side in sides.items()}
        first = {name: sides[name]["to_first_token_ms"] / 1e3 for name in (OURS, PEER)}
        yield Result(
            "generate_step",
            str(texts),
            "bf16",
            "TB/s",
            both["bytes_of_step"],
            step,
            yardstick="large copy",
            yardstick_rate=both["copy_bytes_per_second"] / 1e12,
            method="token to token",
        )
        yield Result(
            "generate_first_token",
            str(texts),
            "bf16",
            "TFLOP/s",
            prompt_flops(texts),
            first,
            yardstick="matrix product",
            yardstick_rate=harness.matrix_product_rate(timer),
            method="token to token",
        )
