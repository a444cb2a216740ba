"""Weights of models of Llama's shape in Hugging Face's layout: safetensors, one file or several.

As in models/checkpoint.py no file is trusted: names, shapes and dtypes of all tensors are checked
before any memory is allocated for them, and what is wrong is one CheckpointError. Nothing is
downloaded, and pickle is not read.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from models.checkpoint import CONFIG, WEIGHTS, CheckpointError, read_json
from models.llama import Config, Llama

INDEX = "model.safetensors.index.json"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
_MOST_TENSORS = 1 << 16

Progress = Callable[[int, int], None]  # bytes that are done, and all of them


def pieces(model: Llama) -> dict[str, list[str]]:
    """For each parameter of the model the checkpoint's tensors that it is, one below the other."""
    own = {
        "norm": ["input_layernorm"],
        "qkv": [f"self_attn.{name}_proj" for name in "qkv"],
        "q_norm": ["self_attn.q_norm"],
        "k_norm": ["self_attn.k_norm"],
        "out": ["self_attn.o_proj"],
        "mlp_norm": ["post_attention_layernorm"],
        "gate_up": ["mlp.gate_proj", "mlp.up_proj"],
        "down": ["mlp.down_proj"],
    }
    found = {}
    for name, _ in model.named_parameters():
        *path, kind = name.split(".")
        if path[0] == "blocks":
            names = [f"model.layers.{path[1]}.{part}" for part in own[path[2]]]
        else:
            names = [
                {"embedding": "model.embed_tokens", "norm": "model.norm"}.get(*path, "lm_head")
            ]
        found[name] = [f"{part}.{kind}" for part in names]
    return found


def views(model: Llama) -> dict[str, Tensor]:
    """The model's weights under a checkpoint's names: parts of its tensors, not copies."""
    parts, found = pieces(model), {}
    for name, parameter in model.named_parameters():
        sizes = _rows(name, parameter, model.config)
        found |= dict(zip(parts[name], parameter.detach().split(sizes), strict=True))
    return found


def load(
    folder: Path,
    config: Config,
    dtype: torch.dtype | None,
    device: torch.device,
    on_progress: Progress | None = None,
) -> Llama:
    """The model of a folder, its weights in `dtype` (None: the checkpoint's), for inference."""
    with torch.device("meta"):  # shapes only, until the files have been checked
        model = Llama(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in views(model).items()}
    with ExitStack() as stack:
        tensors = _open(_files(folder), stack, folder)
        _check_names(tensors, shapes, config, folder)
        for name, shape in shapes.items():
            _check_tensor(*tensors[name], name, shape)
        if HEAD in tensors and config.tie_word_embeddings:
            _check_tie(tensors, shapes[EMBEDDING])
        if dtype is None:
            path, file = tensors[EMBEDDING]
            dtype = _DTYPES[file.get_slice(EMBEDDING).get_dtype()]
        model = model.to(dtype).to_empty(device=device).requires_grad_(False)
        done, total = 0, sum(math.prod(shape) for shape in shapes.values()) * dtype.itemsize
        for name, destination in views(model).items():
            path, file = tensors[name]
            destination.copy_(_read(path, file, name))
            if not bool(torch.isfinite(destination).all()):
                raise CheckpointError(f"{path}: {name} holds values that are not finite")
            done += destination.nbytes
            if on_progress is not None:
                on_progress(done, total)
    return model.eval()


def random(config: Config, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Llama:
    """A model of the shape with random weights, for inference."""
    with torch.device("meta"):
        model = Llama(config)
    model = model.to(dtype).to_empty(device=device).requires_grad_(False)
    model.initialize(seed)
    return model.eval()


def _rows(name: str, parameter: Tensor, config: Config) -> list[int]:
    """The rows of each of a parameter's pieces."""
    part = name.split(".")[-2]
    if part == "qkv":
        return [heads * config.head_dim for heads in config.heads]
    if part == "gate_up":
        return [config.intermediate_size] * 2
    return [parameter.shape[0]]


def _files(folder: Path) -> list[Path]:
    """The files with the weights: all that the index names, or the one there is."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / INDEX
    if not index.is_file():
        pickles = sorted(file.name for file in folder.glob("*.bin"))
        if pickles:
            raise CheckpointError(
                f"{folder}: {pickles[0]} is pickle, which can run code when it is read; "
                "convert it to safetensors"
            )
        raise CheckpointError(f"{folder}: there is neither {WEIGHTS} nor {INDEX}")
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places or len(places) > _MOST_TENSORS:
        raise CheckpointError(f"{index}: weight_map must name the files of tensors")
    names = sorted({str(name) for name in places.values()})
    for name in names:
        named = name.isprintable() and len(name) < 200 and Path(name).name == name
        if not named or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index}: {name!a:.80} is not the name of a file of the folder")
        if not (folder / name).is_file():
            raise CheckpointError(f"{index}: there is no file {name}")
    return [folder / name for name in names]


def _open(files: list[Path], stack: ExitStack, folder: Path) -> dict[str, tuple[Path, safe_open]]:
    """The file of each tensor."""
    found: dict[str, tuple[Path, safe_open]] = {}
    for path in files:
        try:
            file = stack.enter_context(safe_open(path, framework="pt"))
        except (SafetensorError, OSError) as error:
            reason = str(error).splitlines()[0][:200]
            raise CheckpointError(f"{path}: not a safetensors file ({reason})") from error
        for name in file.keys():
            if name in found:
                both = f"{found[name][0].name} and {path.name}"
                raise CheckpointError(f"{folder}: {name} is in two files, {both}")
            found[name] = (path, file)
    return found


def _check_names(tensors: dict, shapes: dict, config: Config, folder: Path) -> None:
    """Every tensor that the model has, and no other."""
    missing = [name for name in shapes if name not in tensors]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(f"{folder}: there is no tensor {missing[0]}{more}")
    others = sorted(name for name in tensors.keys() - shapes.keys() if not _is_idle(name, config))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise CheckpointError(f"{folder}: the model of {CONFIG} has no tensor {others[0]}{more}")


def _is_idle(name: str, config: Config) -> bool:
    """Whether a tensor says nothing: tables that are computed, the head that is the embedding."""
    if name == HEAD:
        return config.tie_word_embeddings
    return name.endswith("rotary_emb.inv_freq")


def _check_tie(tensors: dict, shape: tuple[int, ...]) -> None:
    """A head that is there is the embedding: transformers would compute with another, too."""
    path, file = tensors[HEAD]
    _check_tensor(path, file, HEAD, shape)
    if not torch.equal(_read(path, file, HEAD), _read(*tensors[EMBEDDING], EMBEDDING)):
        raise CheckpointError(
            f"{path}: {HEAD} must be {EMBEDDING}, as tie_word_embeddings of {CONFIG} says"
        )


def _read(path: Path, file: safe_open, name: str) -> Tensor:
    try:
        return file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: {name} cannot be read ({error})") from error


def _check_tensor(path: Path, file: safe_open, name: str, shape: tuple[int, ...]) -> None:
    piece = file.get_slice(name)
    if tuple(piece.get_shape()) != shape or piece.get_dtype() not in _DTYPES:
        raise CheckpointError(
            f"{path}: {name} must be {list(shape)} of {' or '.join(_DTYPES)}, "
            f"got {list(piece.get_shape())} of {piece.get_dtype()}"
        )
