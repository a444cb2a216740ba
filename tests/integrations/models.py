"""A tiny model of each architecture, with what sets it apart: windows, partial rotary, ties."""

import collections
import copy
import math

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

VOCABULARY, LAYERS = 101, 2
_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
_PARTIAL = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
_CONFIGS = {
    "llama": ("LlamaConfig", _SIZES),
    "mistral": ("MistralConfig", _SIZES | {"sliding_window": 8}),
    "qwen2": ("Qwen2Config", _SIZES | {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", _SIZES | {"head_dim": 32}),
    "phi3": ("Phi3Config", _SIZES | {"rope_parameters": _PARTIAL}),
    "gemma2": ("Gemma2Config", _SIZES | {"head_dim": 16, "sliding_window": 8}),
    "gemma3": ("Gemma3TextConfig", _SIZES | {"head_dim": 16, "sliding_window": 8}),
    "gpt2": (
        "GPT2Config",
        {"n_embd": 64, "n_layer": LAYERS, "n_head": 4, "vocab_size": VOCABULARY}
        | {"n_positions": 64, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        | {"bos_token_id": None, "eos_token_id": None},
    ),
}
NAMES = tuple(_CONFIGS)
RMS_NORMS = {"llama": 5, "mistral": 5, "qwen2": 5, "qwen3": 9, "phi3": 5, "gemma2": 9, "gemma3": 13}


def make(name: str, dtype: torch.dtype = torch.float32, **options: object) -> torch.nn.Module:
    """A model in training mode, whose parameters all differ: a norm's weights are no ones."""
    kind, arguments = _CONFIGS[name]
    config = getattr(transformers, kind)(**(arguments | options))
    model = transformers.AutoModelForCausalLM.from_config(config).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.to(dtype)


def pair(name: str, dtype: torch.dtype = torch.float32, **options: object):
    """Two equal models."""
    model = make(name, dtype, **options)
    return model, copy.deepcopy(model)


def batch(rows: int = 2, length: int = 12, padding: int = 3) -> dict[str, torch.Tensor]:
    """Tokens, padding on the left of the first row, and labels, of which those are ignored."""
    ids = torch.randint(VOCABULARY, (rows, length))
    mask = torch.ones_like(ids)
    mask[0, :padding] = 0
    labels = ids.masked_fill(mask == 0, -100)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)  # so each row has positions of its own
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": positions,
        "labels": labels,
    }


def bound(size: torch.Tensor) -> float:
    """How far apart two float32 runs may be that add up in different orders.

    An op rounds by u of its size; 10 of them a block, there and back, and some for the ends, are
    independent. Sums of up to 100 products add √100 roundings each. Three standard deviations, of
    which either run has its own.
    """
    roundings = 2 * (10 * LAYERS + 4)
    unit = torch.finfo(torch.float32).eps / 2
    return 3 * math.sqrt(2 * roundings * 100) * unit * float(size.detach().abs().max())


def step(model: torch.nn.Module, **inputs: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The loss, and the gradients of all parameters."""
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    return loss.detach(), [parameter.grad for parameter in model.parameters()]


class Calls(TorchDispatchMode):
    """Counts the ops of ours that are called within."""

    def __init__(self):
        super().__init__()
        self.count = collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "thunderkittens":
            self.count[function._opname] += 1
        return function(*args, **(kwargs or {}))
