"""The shape of a model of Llama's kind, from Hugging Face's config.json.

Every entry that counts is checked before it is used; one that would change the formula in a way
that models/llama.py does not compute is refused.
"""

import dataclasses
import sys
from pathlib import Path

from models.checkpoint import CONFIG, CheckpointError, read_json
from models.llama import Config, Rope

SHAPES = Path(__file__).with_name("llama_shapes.json")
_LIMITS = {  # the largest value that makes sense, as in models/checkpoint.py
    "vocab_size": 1 << 20,
    "hidden_size": 1 << 16,
    "intermediate_size": 1 << 18,
    "num_hidden_layers": 1 << 9,
    "num_attention_heads": 1 << 10,
    "num_key_value_heads": 1 << 10,
    "head_dim": 1 << 9,
    "max_position_embeddings": 1 << 24,
}
_ONLY = {  # entries that change the formula, and the values that the model computes
    "model_type": ("llama", "mistral", "qwen2", "qwen3"),
    "hidden_act": ("silu",),
    "quantization_config": (None,),
    "partial_rotary_factor": (1.0,),
}
_LARGEST = sys.float_info.max  # an integer of a file can be above it
_STRETCHED = (  # what rope of type llama3 has
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)


def read_config(folder: Path) -> tuple[Config, dict]:
    """A checkpoint folder's Config and what config.json says."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such checkpoint folder")
    path, generation = folder / CONFIG, folder / "generation_config.json"
    entries = read_json(path)
    config = config_of(entries, path)
    if generation.is_file():  # the tokens that end a chat, where these are others
        value = read_json(generation).get("eos_token_id")
        ends = _ends(value, generation, config.vocab_size) or config.ends
        config = dataclasses.replace(config, ends=ends)
    return config, entries


def read_shape(name: str) -> tuple[Config, dict]:
    """The same of a shape of llama_shapes.json by its name, or of a config.json or its folder."""
    shapes = read_json(SHAPES)
    if name in shapes:
        return config_of(shapes[name], SHAPES), shapes[name]
    path = Path(name)
    if not path.exists():
        known = ", ".join(shapes)
        raise CheckpointError(f"{name}: neither a config.json nor one of {known}")
    path = path / CONFIG if path.is_dir() else path
    entries = read_json(path)
    return config_of(entries, path), entries


def config_of(entries: dict, path: Path) -> Config:
    """The Config of config.json's entries; `path` is what messages name."""
    if "model_type" not in entries:
        raise CheckpointError(f"{path}: there is no model_type")
    for name, values in _ONLY.items():
        if name in entries and entries[name] not in values:
            wanted = " or ".join(repr(value) for value in values if value is not None) or "absent"
            raise CheckpointError(f"{path}: {name} must be {wanted}, got {entries[name]!r}")
    kind = entries["model_type"]
    sizes = _sizes(entries, path)
    eps = _number(entries, "rms_norm_eps", 1e-6, path)
    bias = _flag(entries, "attention_bias", path) and kind in ("llama", "qwen3")
    return Config(
        model_type=kind,
        **sizes,
        rope=_rope(entries, path),
        windows=_windows(entries, sizes["num_hidden_layers"], path),
        rms_norm_eps=eps,
        tie_word_embeddings=_flag(entries, "tie_word_embeddings", path),
        qkv_bias=bias or kind == "qwen2",
        out_bias=bias,
        mlp_bias=kind == "llama" and _flag(entries, "mlp_bias", path),
        qk_norm=kind == "qwen3",
        ends=_ends(entries.get("eos_token_id"), path, sizes["vocab_size"]),
    )


def _sizes(entries: dict, path: Path) -> dict[str, int]:
    """The sizes of a model, with the values that some configs leave out."""
    heads, width = entries.get("num_attention_heads"), entries.get("hidden_size")
    whole = type(heads) is int and type(width) is int and heads > 0
    usual = {
        "num_key_value_heads": heads,
        "head_dim": 128 if entries["model_type"] == "qwen3" else width // heads if whole else None,
    }
    found = {}
    for name, limit in _LIMITS.items():
        value = entries.get(name)
        value = usual.get(name) if value is None else value
        if type(value) is not int or not 1 <= value <= limit:
            raise CheckpointError(f"{path}: {name} must be in 1 … {limit}, got {value!r}")
        found[name] = value
    if found["num_attention_heads"] % found["num_key_value_heads"]:
        raise CheckpointError(
            f"{path}: num_attention_heads = {heads} is not divisible by num_key_value_heads = "
            f"{found['num_key_value_heads']}"
        )
    if found["head_dim"] % 2:
        raise CheckpointError(f"{path}: head_dim must be even, got {found['head_dim']}")
    return found


def _rope(entries: dict, path: Path) -> Rope:
    """The rotary embedding, from entries of either form: rope_parameters, or the older two."""
    forms = [form for form in ("rope_parameters", "rope_scaling") if entries.get(form) is not None]
    form = forms[0] if forms else "rope_scaling"
    options = entries[form] if forms else {}
    if not isinstance(options, dict):
        raise CheckpointError(f"{path}: {form} must be an object, got {options!r:.80}")
    if len(forms) == 2 and entries[forms[1]] != options:
        raise CheckpointError(f"{path}: rope_parameters and rope_scaling must be the same")
    kind = options.get("rope_type", options.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise CheckpointError(f"{path}: rope_type must be 'default' or 'llama3', got {kind!r}")
    if options.get("partial_rotary_factor", 1.0) != 1.0:
        raise CheckpointError(f"{path}: partial_rotary_factor must be 1.0")
    others = {*options} - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    if others := sorted(others - {*_STRETCHED} if kind == "llama3" else others):
        raise CheckpointError(f"{path}: {form} of type {kind!r} has no {others[0]!r:.80}")
    default = entries.get("rope_theta", 10000.0)
    theta = _number({"rope_theta": default} | options, "rope_theta", 10000.0, path, least=1.0)
    if kind == "default":
        return Rope(theta)
    factor, low, high = (
        _number(options, name, None, path, least=least)
        for name, least in zip(_STRETCHED[:3], (1.0, 0.0, 0.0), strict=True)
    )
    original = options.get(_STRETCHED[3])
    limit = _LIMITS["max_position_embeddings"]
    if type(original) is not int or not 1 <= original <= limit:
        raise CheckpointError(
            f"{path}: original_max_position_embeddings must be in 1 … {limit}, got {original!r}"
        )
    if high <= low:
        raise CheckpointError(f"{path}: high_freq_factor must be above low_freq_factor")
    return Rope(theta, factor, low, high, original)


def _windows(entries: dict, layers: int, path: Path) -> tuple[int | None, ...]:
    """Each layer's window: of Mistral all, of Qwen those that are said to slide."""
    kind = entries["model_type"]
    window = entries.get("sliding_window", 4096)
    if kind == "llama" or (kind != "mistral" and not _flag(entries, "use_sliding_window", path)):
        window = None
    if window is not None and (type(window) is not int or not 1 <= window <= 1 << 24):
        raise CheckpointError(f"{path}: sliding_window must be in 1 … {1 << 24}, got {window!r}")
    if window is None or kind == "mistral":
        return (window,) * layers
    first = entries.get("max_window_layers", 28)
    types = entries.get("layer_types")
    if types is None:
        if type(first) is not int:
            raise CheckpointError(f"{path}: max_window_layers must be an integer, got {first!r}")
        return tuple(window if layer >= first else None for layer in range(layers))
    known = {"sliding_attention": window, "full_attention": None}
    right = isinstance(types, list) and len(types) == layers
    if not right or not all(isinstance(name, str) and name in known for name in types):
        raise CheckpointError(f"{path}: layer_types must name each layer {' or '.join(known)}")
    return tuple(known[name] for name in types)


def _ends(value: object, path: Path, vocabulary: int) -> tuple[int, ...]:
    """eos_token_id: none, a token, or several."""
    tokens = [] if value is None else value if isinstance(value, list) else [value]
    if len(tokens) > 64 or not all(type(t) is int and 0 <= t < vocabulary for t in tokens):
        raise CheckpointError(f"{path}: eos_token_id must be tokens of the model, got {value!r}")
    return tuple(tokens)


def _flag(entries: dict, name: str, path: Path) -> bool:
    value = entries.get(name, False)
    if type(value) is not bool:
        raise CheckpointError(f"{path}: {name} must be true or false, got {value!r}")
    return value


def _number(
    entries: dict, name: str, default: float | None, path: Path, least: float = 0.0
) -> float:
    value = entries.get(name, default)
    if type(value) not in (int, float) or not least <= value <= _LARGEST:  # nor NaN
        raise CheckpointError(f"{path}: {name} must be a number from {least} on, got {value!r}")
    return float(value)
