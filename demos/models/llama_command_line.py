"""What the programs with a model of Llama's shape share: which model, where, and who serves it."""

import argparse
from contextlib import nullcontext
from pathlib import Path

import torch
from rich.console import Console

import thunderkittens
from models import llama_checkpoint, llama_config
from models.cache import Cache
from models.checkpoint import CheckpointError
from models.command_line import device
from models.llama import Config, Llama
from models.quantized import FORMATS, quantize

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose a model, and where and how it is computed."""
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--model", type=Path, help="a checkpoint folder in Hugging Face's layout")
    kind.add_argument(
        "--random",
        metavar="SHAPE",
        help="random weights: a name (llama-3.1-8b, qwen3-8b …), a config.json or its folder",
    )
    parser.add_argument("--device", type=device, default="auto", help="auto, cpu, cuda, cuda:1 …")
    parser.add_argument("--dtype", default="auto", choices=("auto", *DTYPES))
    parser.add_argument("--quantize", choices=tuple(FORMATS), help="weights of fewer bits")
    parser.add_argument("--backend", default="auto", choices=("auto", "torch", "simulator"))
    parser.add_argument(
        "--cache-dtype",
        default="auto",
        choices=("auto", "fp8"),
        help="of keys and values: the model's (auto), or float8_e4m3fn, of half its size and less",
    )


def read_config(options: argparse.Namespace) -> tuple[Config, dict, str]:
    """The Config that the options mean, what its config.json says, and what to call the model."""
    if options.random:
        name = f"{Path(options.random).name} (random weights)"
        return *llama_config.read_shape(options.random), name
    return *llama_config.read_config(options.model), options.model.resolve().name


def load_model(
    options: argparse.Namespace, config: Config, console: Console, seed: int = 1
) -> Llama:
    """The model, frozen, a live line while its files are read; random weights are the seed's."""
    model = read_model(options, config, console, seed)
    if options.quantize is not None:
        try:
            quantize(model, options.quantize)
        except ValueError as error:
            raise CheckpointError(f"--quantize: {error}") from error
    model.freeze()
    return model


def read_model(options: argparse.Namespace, config: Config, console: Console, seed: int) -> Llama:
    """The model as it was trained."""
    dtype = DTYPES.get(options.dtype)
    if options.random:
        usual = torch.float32 if options.device.type == "cpu" else torch.bfloat16
        return llama_checkpoint.random(config, dtype or usual, options.device, seed)
    if dtype is None and options.device.type == "cpu":
        dtype = torch.float32
    with console.status("reading weights") if console.is_terminal else nullcontext() as status:

        def on_progress(done: int, total: int) -> None:
            if status is not None:
                status.update(f"reading weights: {done / 1e9:.1f} of {total / 1e9:.1f} GB")

        return llama_checkpoint.load(options.model, config, dtype, options.device, on_progress)


def served_by(model: Llama, cache: Cache) -> list[str]:
    """A line for the attention of prompt and of step: which backend takes it, and why."""
    config, options = model.config, {"dtype": model.dtype, "device": model.device}
    heads, dim = config.heads, config.head_dim
    q, k = (torch.empty(1, 64, count, dim, **options) for count in heads[:2])
    one = cache.rows(0, 1)
    lengths = {"seqlens": torch.ones(1, dtype=torch.int32, device=model.device)}
    prompt = thunderkittens.explain("attention", q, k, k, causal=True)
    step = thunderkittens.explain(
        *("attention_decode", q[:, :1], *one.layers[0]),
        **lengths,
        page_table=one.table,
        **one.scales[0],
    )
    return [
        f"{name}: {found.backend} ({found.reason})"
        for name, found in (("attention", prompt), ("attention_decode", step))
    ]
