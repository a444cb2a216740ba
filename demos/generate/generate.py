"""Streams text from a GPT-2 checkpoint through thunderkittens ops, and says who served each op.

    python -m demos.generate --prompt "def main(" --tokens 200
    python -m demos.generate --checkpoint FOLDER --compare
    python -m demos.generate --model FOLDER --help               # a Llama, Qwen or Mistral: llm.py

With --compare, the same prompt also runs with torch's own ops, greedily (temperature 0). Without a
GPU the kernels run in the simulator, where that is built. In float32 the tokens must be equal. In
16 bit the first difference, if any, must be a tie: see `tie_bound`.

Exit codes: 0 good; 1 --compare found a difference; 2 bad arguments or a bad checkpoint.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import llm
import torch
from models import checkpoint
from models.command_line import device, number, picture, text
from models.gpt2 import GPT2, THUNDERKITTENS_OPS, TORCH_OPS, generate
from rich.console import Console
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream
from torch import Tensor

import thunderkittens

DEFAULT_CHECKPOINT = Path(__file__).resolve().parents[1] / "checkpoints" / "python-4m"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
console = Console(highlight=False, soft_wrap=True, record=True)


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; `auto` is resolved."""
    parser = argparse.ArgumentParser(
        prog="generate",
        description=__doc__.split("\n")[0],
        epilog="With --model FOLDER or --random SHAPE: a Llama, Qwen or Mistral, whose options "
        "`--model FOLDER --help` lists.",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        default=DEFAULT_CHECKPOINT,
        help="a folder in the Hugging Face GPT-2 layout (default: the one shipped, python-4m)",
    )
    parser.add_argument(
        "--prompt", type=text, default="def read_lines(path):", help="how the text begins"
    )
    parser.add_argument(
        "--tokens",
        type=number(int, 1, 1 << 20),
        help="at most (default: 120, in the simulator 24)",
    )
    parser.add_argument("--temperature", type=number(float, 0.0, 100.0), default=0.6)
    parser.add_argument("--top-k", type=number(int, 0, 1 << 20), default=40, help="0: all")
    parser.add_argument("--seed", type=number(int, 0, 2**63 - 1), default=1)
    parser.add_argument("--device", type=device, default="auto", help="auto, cpu, cuda, cuda:1 …")
    parser.add_argument("--dtype", default="auto", choices=("auto", *DTYPES))
    parser.add_argument("--backend", default="auto", choices=("auto", "torch", "simulator"))
    parser.add_argument("--compare", action="store_true", help="against torch's own ops, greedily")
    parser.add_argument("--svg", type=Path, help="a file: what is printed, as a picture")
    options = parser.parse_args(arguments)
    if missing := why_missing(options.backend):
        parser.error(f"--backend {options.backend}: {missing}")
    on_cpu = options.device.type == "cpu"
    if options.compare and on_cpu and options.backend == "auto" and not why_missing("simulator"):
        options.backend = "simulator"
    if options.dtype == "auto":  # in the simulator that of the kernels: attention is 16-bit
        kernels = not on_cpu or (options.compare and options.backend == "simulator")
        options.dtype = "bfloat16" if kernels else "float32"
    if options.tokens is None:
        options.tokens = 24 if options.backend == "simulator" else 120
    return options


def why_missing(backend: str) -> str:
    """What keeps a backend from being chosen; "" for nothing."""
    try:
        with thunderkittens.backend(backend):
            return ""
    except RuntimeError as error:
        return str(error)


class Result:
    """What one run produced: tokens, the logits each was drawn from, and how long it took."""

    def __init__(self):
        self.tokens: list[int] = []
        self.logits: list[Tensor] = []  # fp32 [vocab_size] each; filled only if they are wanted
        self.seconds: list[float] = []  # the first covers the prompt, each other one token

    def timing(self) -> str:
        """Prefill milliseconds and tokens per second, as a line."""
        line = f"prefill {self.seconds[0] * 1e3:.1f} ms"
        if len(self.seconds) > 1:
            line += f", then {(len(self.seconds) - 1) / sum(self.seconds[1:]):.1f} tokens/s"
        return line


def run(
    model: GPT2,
    tokenizer: Tokenizer,
    prompt: list[int],
    options: argparse.Namespace,
    echo: bool,
) -> Result:
    """Generates, up to --tokens or the end of the text; `echo` streams it to the console."""
    temperature = 0.0 if options.compare else options.temperature
    end = tokenizer.token_to_id(checkpoint.END_OF_TEXT)
    decoder = DecodeStream(skip_special_tokens=True)
    warmup = generate(model, prompt)  # the first calls of a process pay for its start
    next(warmup), next(warmup)
    if echo:
        console.out(options.prompt, end="", style="bold cyan", highlight=False)
    result = Result()
    stream = generate(model, prompt, temperature, options.top_k, options.seed)
    mark = time.perf_counter()
    for token, logits in stream:
        now = time.perf_counter()
        result.seconds.append(now - mark)
        result.tokens.append(token)
        if options.compare:
            result.logits.append(logits.cpu())
        if echo:
            console.out(decoder.step(tokenizer, token) or "", end="", highlight=False)
        if token == end or len(result.tokens) == options.tokens:
            break
        mark = time.perf_counter()
    return result


def served_by(model: GPT2, prompt_length: int) -> Iterator[str]:
    """A line per op: which backend takes it, and why; two where prompt and tokens differ."""
    config, weight = model.config, model.transformer.wte.weight
    norm, heads = model.transformer.ln_f, (config.n_head, config.n_embd // config.n_head)
    lines: dict[str, list[str]] = {"layer_norm": [], "attention": []}
    for queries, keys in (prompt_length, prompt_length), (1, prompt_length + 1):
        x = torch.empty(1, queries, config.n_embd, dtype=weight.dtype, device=weight.device)
        q, k = (x.new_empty(1, length, *heads) for length in (queries, keys))
        calls = {"layer_norm": (x, norm.weight, norm.bias, norm.eps), "attention": (q, k, k)}
        for op, arguments in calls.items():
            causal = {"causal": True} if op == "attention" else {}
            found = thunderkittens.explain(op, *arguments, **causal)
            lines[op].append(f"{op}: {found.backend} ({found.reason})")
    for prefill, decode in lines.values():
        same = prefill == decode
        yield from [prefill] if same else [f"prefill: {prefill}", f"decode: {decode}"]


def tie_bound(logits: Tensor, dtype: torch.dtype, model: GPT2) -> float:
    """How far rounding alone can move the gap of two logits, between two runs of one model.

    Every op rounds what it passes on to `dtype`, by up to u = eps / 2 of its size, and sums n
    products in float32, which adds up to sqrt(n) of float32's own u. Two runs that compute the
    same formula in different orders differ by such roundings, of either sign:

    - on the way to the last hidden state there are r = 10 * n_layer + 3 of them (per block: two
      norms, four products, attention, gelu, two sums; the embedding, the last norm, the head).
      They are independent, so that together they move the hidden state by sqrt(r) * u of its
      length, in no particular direction: a logit by that share of the logits' own spread s (root
      mean square around their mean). A gap has two logits, in two runs: sqrt(4) of that; times 2
      for two standard deviations.
    - each of the four logits is itself rounded to `dtype`: by u of its size m, two in each run
      with either sign, so up to 2 * u * m on the gap of one run.

    bound = 4 * sqrt(r) * sqrt(u² + n * u32²) * s + 2 * u * m.
    """
    unit, unit32 = torch.finfo(dtype).eps / 2, torch.finfo(torch.float32).eps / 2
    roundings = 10 * model.config.n_layer + 3
    rounding = math.sqrt(unit**2 + model.config.mlp_width * unit32**2)
    spread = float((logits - logits.mean()).square().mean().sqrt())
    return 4 * math.sqrt(roundings) * rounding * spread + 2 * unit * float(logits.abs().max())


def compare(ours: Result, theirs: Result, model: GPT2, tokenizer: Tokenizer) -> bool:
    """Prints how two greedy runs agree; returns whether they do as well as their dtype allows."""
    dtype = model.transformer.wte.weight.dtype
    pairs = list(zip(ours.tokens, theirs.tokens, strict=False))
    equal = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    # Up to the first difference, that one included, both runs saw the same text.
    both = list(zip(ours.logits[: equal + 1], theirs.logits[: equal + 1], strict=True))
    largest = float(torch.stack([(a - b).abs().max() for a, b in both]).max())
    if not math.isfinite(largest):
        console.print("compare: the logits are not finite", style="bold red")
        return False
    console.print(f"tokens: {equal} of {len(pairs)} equal; logits: differ by up to {largest:.3g}")
    if equal == len(pairs):
        console.print("compare: equal", style="bold green")
        return True
    a, b = pairs[equal]
    gap = max(
        float(ours.logits[equal][a] - ours.logits[equal][b]),
        float(theirs.logits[equal][b] - theirs.logits[equal][a]),
    )
    bound = tie_bound(theirs.logits[equal], dtype, model)
    names = " or ".join(repr(tokenizer.decode([token])) for token in (a, b))
    console.print(
        f"token {equal + 1}: {names}; their logits are {gap:.3g} apart, "
        f"a tie in {str(dtype).removeprefix('torch.')} is up to {bound:.3g}",
        markup=False,
    )
    if dtype == torch.float32:
        console.print("compare: different, and in float32 nothing may be", style="bold red")
        return False
    tie = gap <= bound
    verdict = "equal up to a tie" if tie else "different, by more than rounding explains"
    console.print(f"compare: {verdict}", style="bold green" if tie else "bold red")
    return tie


def demo(options: argparse.Namespace) -> bool:
    """Runs the program; returns whether --compare, if asked for, agreed."""
    dtype = DTYPES[options.dtype]
    model = checkpoint.load(options.checkpoint, dtype, options.device, THUNDERKITTENS_OPS)
    tokenizer = checkpoint.load_tokenizer(options.checkpoint, model.config)
    prompt = tokenizer.encode(options.prompt).ids
    if not prompt:
        prompt = [tokenizer.token_to_id(checkpoint.END_OF_TEXT) or 0]
    size = sum(parameter.numel() for parameter in model.parameters())
    console.print(
        f"{options.checkpoint.name}: {size / 1e6:.1f} M parameters, {options.dtype} on "
        f"{options.device}; prompt of {len(prompt)} tokens",
        style="bold",
        markup=False,
    )
    with thunderkittens.backend(options.backend):
        ours = run(model, tokenizer, prompt, options, echo=True)
        lines = list(served_by(model, min(len(prompt), model.config.n_positions)))
    console.print(f"\n\n{ours.timing()}", style="bold")
    for line in (*lines, "all else: torch"):
        console.print(line, markup=False)
    if not options.compare:
        return True
    if not any(": cuda" in line or ": simulator" in line for line in lines):
        why = why_missing("simulator") if options.backend == "auto" else "--backend torch"
        console.print(
            f"compare: no kernel has run, both sides are torch's ops on the CPU ({why})",
            style="yellow",
            markup=False,
        )
    model = checkpoint.load(options.checkpoint, dtype, options.device, TORCH_OPS)
    theirs = run(model, tokenizer, prompt, options, echo=False)
    console.print(f"torch's own ops: {theirs.timing()}", style="bold")
    return compare(ours, theirs, model, tokenizer)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if any(argument.split("=")[0] in ("--model", "--random") for argument in arguments):
        return llm.main(arguments)
    options = parse_options(arguments)
    try:
        good = demo(options)
        if options.svg:
            picture(console, options.svg, "python -m demos.generate")
        return 0 if good else 1
    except (checkpoint.CheckpointError, OSError) as error:
        print(f"generate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
