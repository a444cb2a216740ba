"""Checkpoints in the Hugging Face GPT-2 layout: a folder of three files.

    config.json          sizes of the model, under GPT2Config's names
    model.safetensors    weights, with or without the prefix `transformer.`
    tokenizer.json       (or vocab.json and merges.txt, as older ones have)

A file is not trusted: every size and shape in it is checked before it is used, so that a damaged
or a foreign one ends in one CheckpointError, and never in a large allocation. Pickle is not read.
"""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from models.gpt2 import GPT2, THUNDERKITTENS_OPS, Config, Ops

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"

_MAX_JSON_BYTES = 64 << 20
_FLOATS = {"F16", "BF16", "F32"}
_LIMITS = {  # the largest value that makes sense; what a file asks for beyond it is an accident
    "vocab_size": 1 << 20,
    "n_positions": 1 << 20,
    "n_embd": 1 << 16,
    "n_layer": 1 << 8,
    "n_head": 1 << 10,
    "n_inner": 1 << 18,
}
_ONLY = {  # entries of GPT2Config that change the formula, and the values that this model computes
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
}


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message is one sentence that names the file and says why."""


def load(
    folder: str | Path,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    ops: Ops = THUNDERKITTENS_OPS,
) -> GPT2:
    """The model of a checkpoint folder, in evaluation mode, with its weights in `dtype`."""
    folder = Path(folder)
    config = read_config(folder)
    with torch.device("meta"):  # shapes only: nothing is allocated before the file has been checked
        model = GPT2(config, ops)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    tensors = read_tensors(_weights_file(folder), shapes, prefix="transformer.")
    state = {name: tensor.to(device, dtype) for name, tensor in tensors.items()}
    model.load_state_dict(state, assign=True)
    return model.eval()


def save(
    folder: str | Path, model: GPT2, tokenizer: Tokenizer, dtype: torch.dtype | None = None
) -> None:
    """Writes a checkpoint folder, its weights in `dtype` (None: as they are)."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
    end = tokenizer.token_to_id(END_OF_TEXT)
    config |= dataclasses.asdict(model.config) | {"bos_token_id": end, "eos_token_id": end}
    write_json(folder / CONFIG, config)
    write(folder / TOKENIZER, lambda path: tokenizer.save(str(path)))
    write_tensors(
        folder / WEIGHTS,
        {name: value.to(dtype or value.dtype) for name, value in model.state_dict().items()},
    )


def load_tokenizer(folder: str | Path, config: Config) -> Tokenizer:
    """The tokenizer of a checkpoint folder; its tokens must be ones that the model has."""
    folder = Path(folder)
    path = folder / TOKENIZER
    try:
        if path.exists():
            tokenizer = Tokenizer.from_str(_read_text(path))
        else:
            path = folder / "vocab.json"
            _read_text(path)
            tokenizer = Tokenizer(models.BPE.from_file(str(path), str(folder / "merges.txt")))
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = decoders.ByteLevel()
        largest = max(tokenizer.get_vocab().values(), default=-1)
    except CheckpointError:
        raise
    except Exception as error:  # what the library raises has no narrower class
        raise CheckpointError(f"{path}: not a tokenizer ({_one_line(error)})") from error
    if not 0 <= largest < config.vocab_size:
        raise CheckpointError(
            f"{path}: the largest token is {largest}, but the model has {config.vocab_size} tokens"
        )
    return tokenizer


def read_config(folder: Path) -> Config:
    """Reads config.json; every entry that the model uses is checked."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such checkpoint folder")
    path = folder / CONFIG
    entries = read_json(path)
    for name, values in _ONLY.items():
        if name in entries and entries[name] not in values:
            raise CheckpointError(f"{path}: {name} must be {values[0]!r}, got {entries[name]!r}")
    fields = {field.name: field.default for field in dataclasses.fields(Config)}
    found = {name: entries.get(name, default) for name, default in fields.items()}
    for name, limit in _LIMITS.items():
        if found[name] is None and name == "n_inner":
            continue
        if type(found[name]) is not int or not 1 <= found[name] <= limit:
            raise CheckpointError(f"{path}: {name} must be in 1 … {limit}, got {found[name]!r}")
    for name in ("layer_norm_epsilon", "embd_pdrop", "resid_pdrop"):
        value = found[name]
        if type(value) not in (int, float) or not (math.isfinite(value) and 0 <= value < 1):
            raise CheckpointError(f"{path}: {name} must be in [0, 1), got {value!r}")
    if type(found["tie_word_embeddings"]) is not bool:
        raise CheckpointError(f"{path}: tie_word_embeddings must be true or false")
    if found["n_embd"] % found["n_head"]:
        raise CheckpointError(
            f"{path}: n_embd = {found['n_embd']} is not divisible by n_head = {found['n_head']}"
        )
    return Config(**found)


def read_tensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], prefix: str = "", dtypes: set[str] = _FLOATS
) -> dict[str, Tensor]:
    """The tensors called for by `shapes`, after a check of their names, shapes, dtypes and values.

    A name may stand in the file with or without `prefix`. Other tensors in the file are ignored.
    """
    tensors = {}
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            found = {name: _find(path, names, name, prefix) for name in shapes}
            for name, shape in shapes.items():
                piece = file.get_slice(found[name])
                if tuple(piece.get_shape()) != shape or piece.get_dtype() not in dtypes:
                    raise CheckpointError(
                        f"{path}: {name} must be {list(shape)} of {' or '.join(sorted(dtypes))}, "
                        f"got {list(piece.get_shape())} of {piece.get_dtype()}"
                    )
            for name in shapes:
                tensors[name] = file.get_tensor(found[name])
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a safetensors file ({_one_line(error)})") from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{path}: {name} holds values that are not finite")
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file, whole or not at all."""
    on_cpu = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    content = to_bytes(on_cpu, metadata={"format": "pt"})
    write(path, lambda scratch: scratch.write_bytes(content))


def read_json(path: Path) -> dict:
    """Reads a JSON object."""
    try:
        entries = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: not a JSON file ({_one_line(error)})") from error
    if not isinstance(entries, dict):
        raise CheckpointError(f"{path}: must hold a JSON object, got {type(entries).__name__}")
    return entries


def write_json(path: Path, entries: dict) -> None:
    """Writes a JSON object, whole or not at all."""
    text = json.dumps(entries, indent=2) + "\n"
    write(path, lambda scratch: scratch.write_text(text, encoding="utf-8"))


def write(path: Path, writer: Callable[[Path], object]) -> None:
    """Lets `writer` fill a file beside `path`, then puts it in the place of `path`."""
    scratch = path.with_name(path.name + ".partial")
    writer(scratch)
    os.replace(scratch, path)


def _weights_file(folder: Path) -> Path:
    path = folder / WEIGHTS
    if path.is_file():
        return path
    pickles = sorted(file.name for file in folder.glob("*.bin"))
    if pickles:
        raise CheckpointError(
            f"{folder}: {pickles[0]} is pickle, which can run code when it is read; "
            f"convert it to {WEIGHTS}"
        )
    raise CheckpointError(f"{folder}: there is no {WEIGHTS}")


def _find(path: Path, names: set[str], name: str, prefix: str) -> str:
    """The name under which a file has a tensor, with or without the prefix."""
    for candidate in (name, name.removeprefix(prefix)):
        if candidate in names:
            return candidate
    raise CheckpointError(f"{path}: there is no tensor {name}")


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise CheckpointError(f"{path}: there is no such file")
        size = path.stat().st_size
        if size > _MAX_JSON_BYTES:
            raise CheckpointError(f"{path}: {size} bytes is too large, limit {_MAX_JSON_BYTES}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({_one_line(error)})") from error


def _one_line(error: Exception) -> str:
    """The first line of an exception's message, cut to a length that fits in a sentence."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:200]
