"""Tiny models of each architecture, saved by transformers and loaded by models/llama.py."""

import atexit
import copy
import functools
import shutil
import tempfile
from pathlib import Path

import torch
import transformers
from models import llama_checkpoint, llama_config

VOCABULARY = 101
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
SLIDING = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
KINDS = {  # each with what sets it apart
    "llama": {"rope_parameters": LLAMA3, "attention_bias": True, "mlp_bias": True},
    "mistral": {"sliding_window": 8},
    "qwen2": {"tie_word_embeddings": True} | SLIDING,
    "qwen3": {"head_dim": 32},
}
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79], [32, 38, 46], [26]]


@functools.cache
def made(kind: str, **options: object):
    """transformers' model, with eager attention, its folder of several files, and ours from it."""
    name = {"llama": "LlamaConfig", "mistral": "MistralConfig"}.get(kind, f"Qwen{kind[-1]}Config")
    config = getattr(transformers, name)(**(SIZES | KINDS[kind] | options))
    torch.manual_seed(0)
    eager = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in eager.parameters():  # norms' weights and biases differ, too
            parameter += 0.1 * torch.randn_like(parameter)
    folder = Path(tempfile.mkdtemp(prefix="thunderkittens-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    eager.save_pretrained(folder, max_shard_size="60KB")
    return eager.eval(), folder, loaded(folder)


def loaded(folder: Path, dtype: torch.dtype | None = None, device: str = "cpu"):
    """Our model of a folder."""
    config, _ = llama_config.read_config(folder)
    return llama_checkpoint.load(folder, config, dtype, torch.device(device))


@torch.no_grad()
def eager_logits(eager, text: list[int]) -> torch.Tensor:
    """[tokens, vocabulary]."""
    return eager(torch.tensor([text])).logits[0]


@torch.no_grad()
def eager_greedy(eager, prompt: list[int], count: int) -> list[int]:
    """The likeliest tokens, each by a forward over all before it."""
    text = list(prompt)
    for _ in range(count):
        text.append(int(eager_logits(eager, text)[-1].argmax()))
    return text[len(prompt) :]


def changed(model, **options):
    """The same weights under another config."""
    twin = copy.copy(model)
    twin.config = type(model.config)(**(vars(model.config) | options))
    return twin
