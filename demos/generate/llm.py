"""Generates text with a local Llama, Qwen or Mistral on thunderkittens ops, and says what it costs.

    python -m demos.generate --model FOLDER --chat --prompt "Why is the sky blue?"
    python -m demos.generate --random llama-3.1-8b --prompt-tokens 1024 --batch 16 --compare

The prompts are read at once; then each step, a token for every text, is one CUDA graph. Nothing is
downloaded. With --compare the same texts also come from transformers' model, with torch's
attention, on the same weights, both greedily: they must be equal, or differ first at a tie.

Exit codes: 0 good; 1 --compare found a difference; 2 bad arguments or a bad checkpoint.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import figures
import peer
import torch
from models import checkpoint
from models.cache import PAGE
from models.command_line import number, text
from models.decoding import Decoder, DecodingError
from models.llama import Config, Llama
from models.llama_command_line import add_options, load_model, read_config, served_by
from models.quantized import count_parameters
from models.sampling import Sampling
from models.text_stream import TextStream
from reading import Reading
from rich.console import Console
from tokenizers import Tokenizer

import thunderkittens

DEFAULT_PROMPT = "The most surprising thing about cats is"


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="generate", description=__doc__.split("\n")[0])
    add_options(parser)
    parser.add_argument("--prompt", type=text, action="append", help="again for further texts")
    parser.add_argument("--chat", action="store_true", help="prompts are what a user says")
    parser.add_argument("--system", type=text, help="with --chat: what the system says first")
    length = number(int, 1, 1 << 24)
    parser.add_argument("--prompt-tokens", type=length, help="prompts of so many random tokens")
    parser.add_argument("--batch", type=number(int, 1, 4096), default=1, help="texts a prompt")
    parser.add_argument("--tokens", type=length, default=128, help="at most (default: 128)")
    parser.add_argument("--context", type=length, help="tokens a text has place for")
    parser.add_argument("--temperature", type=number(float, 0.0, 100.0), default=0.6)
    parser.add_argument("--top-k", type=number(int, 0, 1 << 20), default=0, help="0: all")
    parser.add_argument("--top-p", type=number(float, 0.0, 1.0), default=0.95, help="1: all")
    parser.add_argument("--seed", type=number(int, 0, 2**63 - 1), default=1)
    parser.add_argument("--ignore-end", action="store_true", help="go on behind a text's end")
    parser.add_argument("--cache", default="static", choices=("static", "paged"))
    parser.add_argument("--compare", action="store_true", help="with transformers, greedily")
    parser.add_argument("--json", help="a file for the figures; - for standard output")
    options = parser.parse_args(arguments)
    if options.random and (options.prompt or options.chat):
        parser.error("--random has no tokenizer: give --prompt-tokens, not --prompt or --chat")
    if options.prompt_tokens and (options.prompt or options.chat):
        parser.error("--prompt-tokens takes the place of --prompt and --chat")
    if options.system is not None and not options.chat:
        parser.error("--system needs --chat")
    if options.random and options.prompt_tokens is None:
        options.prompt_tokens = 512
    if options.compare and options.quantize:
        parser.error("--compare needs the weights as they are, not --quantize")
    if options.compare and options.cache_dtype != "auto":
        parser.error("--compare needs --cache-dtype auto: fp8 rounds by more than a tie allows")
    if options.compare:
        options.temperature = 0.0
    return options


def encode_prompts(
    options: argparse.Namespace, config: Config, tokenizer: Tokenizer | None
) -> list[list[int]]:
    """The tokens of every text."""
    if options.prompt_tokens:
        generator = torch.Generator().manual_seed(options.seed)
        shape = (options.batch, options.prompt_tokens)
        return torch.randint(config.vocab_size, shape, generator=generator).tolist()
    prompts = options.prompt or [DEFAULT_PROMPT]
    if options.chat:
        prompts = [chat_text(options.model, prompt, options.system) for prompt in prompts]
    encoded = [tokenizer.encode(p, add_special_tokens=not options.chat).ids for p in prompts]
    if not all(encoded):
        raise DecodingError("a prompt without a token cannot be gone on from")
    return [prompt for prompt in encoded for _ in range(options.batch)]


def chat_text(folder: Path, said: str, system: str | None) -> str:
    """A conversation up to where the assistant speaks, by the template of the tokenizer."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise checkpoint.CheckpointError(f"--chat needs transformers ({error})") from error
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": said})
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is a program, and can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise checkpoint.CheckpointError(f"{folder}: no chat template to use ({reason})") from error


class Stream:
    """The first text, written as it comes; tokens' numbers where there is no tokenizer."""

    def __init__(self, console: Console, tokenizer: Tokenizer | None):
        self.console, self.text = console, TextStream(tokenizer)

    def __call__(self, tokens: list[int | None]) -> None:
        """Takes the next token of each row."""
        if tokens[0] is not None:
            self.console.out(self.text.step(tokens[0]), end="", highlight=False)


def compare(
    console: Console, model: Llama, other: peer.Peer, prompts: list, runs: list[figures.Run]
) -> bool:
    """Prints how two greedy runs agree; whether they do as well as their dtype allows."""
    equal, ties, wrong = 0, 0, 0
    for row, prompt in enumerate(prompts):
        ours, theirs = (run.rows[row] for run in runs)
        found = peer.difference(model, other, prompt, ours, theirs)
        if found is None:
            equal += 1
            continue
        at, gap, bound = found
        tie = gap <= bound
        ties, wrong = ties + tie, wrong + (not tie)
        console.print(
            f"text {row + 1}: token {at + 1} differs; its logits are {gap:.3g} apart, "
            f"a tie is up to {bound:.3g}"
        )
    console.print(
        f"compare: {equal} of {len(prompts)} texts equal, {ties} equal up to a tie, "
        f"{wrong} different",
        style="bold red" if wrong else "bold green",
    )
    return not wrong


def demo(options: argparse.Namespace, console: Console) -> bool:
    """Runs the program; returns whether --compare, if asked for, agreed."""
    config, entries, name = read_config(options)
    tokenizer = None if options.random else checkpoint.load_tokenizer(options.model, config)
    prompts = encode_prompts(options, config, tokenizer)
    context = check_context(config, max(map(len, prompts)), options.tokens, options.context)
    start = time.perf_counter()
    model = load_model(options, config, console, options.seed)
    report = {"model": name, **shape_of(model, prompts), "load_s": time.perf_counter() - start}
    report["weights"] = options.quantize or report["dtype"]
    console.print(heading(report), style="bold", markup=False)
    sampling = Sampling(options.temperature, options.top_k, options.top_p)
    ends = () if options.ignore_end or options.compare or options.random else None
    page = PAGE if options.cache == "paged" else None
    narrow = options.cache_dtype == "fp8"
    decoder = Decoder(model, len(prompts), context, sampling, ends=ends, page=page, narrow=narrow)
    runs = [write_texts(options, console, tokenizer, decoder, prompts)]
    copy = report["copy_bytes_per_second"] = figures.copy_rate(options.device)
    moved = report["bytes_of_step"] = figures.bytes_of_median_step(decoder, prompts, runs[0])
    report["tokens"] = max(map(len, runs[0].rows))
    report["peak_bytes"] = figures.peak_bytes(options.device)
    report["cache_bytes"] = decoder.cache.nbytes
    ours = report["thunderkittens"] = figures.of_run(runs[0], moved)
    console.print(f"\n{figures.line('thunderkittens', ours, copy)}", style="bold")
    if report["peak_bytes"] is not None:
        console.print(f"peak memory: {report['peak_bytes'] / 2**30:.2f} GiB")
    if narrow:
        console.print(f"cache: {decoder.cache.nbytes / 2**20:,.1f} MiB in fp8")
    for line in served_by(model, decoder.cache):
        console.print(line, markup=False)
    if options.compare:
        other, on_gpu = peer.Peer(model, entries), options.device.type == "cuda"
        runs.append(figures.timed(partial(other.generate, prompts), options.tokens, on_gpu))
        theirs = report["transformers"] = figures.of_run(runs[1], moved)
        console.print(figures.line("transformers, sdpa", theirs, copy), style="bold")
        report["agreed"] = compare(console, model, other, prompts, runs)
    write_report(options.json, report)
    return report.get("agreed", True)


def shape_of(model: Llama, prompts: list[list[int]]) -> dict:
    """What is generated on what."""
    on_gpu = model.device.type == "cuda"
    return {
        "parameters": count_parameters(model),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": torch.cuda.get_device_name(model.device) if on_gpu else "cpu",
        "texts": len(prompts),
        "prompt_tokens": [min(map(len, prompts)), max(map(len, prompts))],
    }


def heading(report: dict) -> str:
    """The first line."""
    shortest, longest = report["prompt_tokens"]
    lengths = f"{longest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
    texts = f"{report['texts']} text{'s' if report['texts'] > 1 else ''} of {lengths} tokens"
    size = report["parameters"]
    kinds = report["dtype"]
    if report["weights"] != kinds:
        kinds += f" with {report['weights']} weights"
    amount = f"{size / 1e9:.2f} B" if size >= 1e8 else f"{size / 1e6:.1f} M"
    return (
        f"{report['model']}: {amount} parameters, {kinds} on {report['device']}, "
        f"ready in {report['load_s']:.1f} s; {texts}"
    )


def write_texts(
    options: argparse.Namespace,
    console: Console,
    tokenizer: Tokenizer | None,
    decoder: Decoder,
    prompts: list[list[int]],
) -> figures.Run:
    """Generates, the first text written as it comes, the others behind it."""
    on_gpu, layers = options.device.type == "cuda", decoder.model.config.num_hidden_layers

    def generate(limit: int) -> Iterator[list[int | None]]:
        reading = Reading(console, sum(map(len, prompts)), layers, on_gpu)
        return reading.over(decoder.generate(prompts, limit, options.seed, reading.on_layer))

    if tokenizer is not None and not options.chat and not options.prompt_tokens:
        prompt = (options.prompt or [DEFAULT_PROMPT])[0]
        console.out(prompt, end="", style="bold cyan", highlight=False)
    run = figures.timed(generate, options.tokens, on_gpu, Stream(console, tokenizer))
    console.print()
    for row in range(1, len(prompts) if tokenizer else 1):
        console.print(f"\ntext {row + 1}:", style="bold")
        console.out(tokenizer.decode(run.rows[row]), highlight=False)
    return run


def check_context(config: Config, longest: int, tokens: int, context: int | None) -> int:
    """The cache's size: prompt and answer have to fit it, and it the model's positions."""
    needed = longest + tokens - 1  # the last token is given out, and needs no place
    context = needed if context is None else context
    if needed > context:
        raise DecodingError(
            f"--context must be at least {needed}, for a prompt of {longest} tokens and {tokens} "
            f"more, got {context}"
        )
    if context > config.max_position_embeddings:
        raise DecodingError(
            f"the model has {config.max_position_embeddings} positions, and prompt and answer "
            f"would take {context}"
        )
    return context


def write_report(path: str | None, report: dict) -> None:
    """Writes the figures as JSON."""
    if path is None:
        return
    content = json.dumps(report, indent=2) + "\n"
    if path == "-":
        sys.stdout.write(content)
    else:
        Path(path).write_text(content, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = parse_options(arguments)
    console = Console(highlight=False, soft_wrap=True, stderr=options.json == "-")
    try:
        with thunderkittens.backend(options.backend):
            return 0 if demo(options, console) else 1
    except (checkpoint.CheckpointError, DecodingError, OSError, torch.OutOfMemoryError) as error:
        print(f"generate: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
