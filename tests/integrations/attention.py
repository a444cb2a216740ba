"""Models with our attention and with eager's, and inputs that pad, for the tests of `register`."""

import copy

import torch
import transformers

from tests.integrations import models
from tests.integrations.models import NAMES, VOCABULARY, bound
from thunderkittens.integrations.transformers import register

register()
LENGTHS = (3, 10, 1)  # of packed sequences
OSS = {
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "sliding_window": 8,
    "pad_token_id": None,
    "eos_token_id": None,
}
ALL = (*NAMES, "gpt_oss")
_made: dict[tuple, tuple] = {}


def pair(name, **options):
    """One model with our attention and one with eager's, made once and never changed by a test."""
    key = (name, *options.items())
    if key not in _made:
        torch.manual_seed(0)
        if name == "gpt_oss":
            config = transformers.GptOssConfig(**(OSS | options))
            ours = transformers.AutoModelForCausalLM.from_config(config)
        else:
            if name == "gemma2" and "attn_logit_softcapping" not in options:
                options = {**options, "attn_logit_softcapping": 0.5}  # low enough to be felt
            ours = models.make(name, **options)
        if name == "gpt_oss":
            for parameter in ours.parameters():
                parameter.data.normal_(0, 0.3)
        theirs = copy.deepcopy(ours)
        ours.set_attn_implementation("thunderkittens")
        theirs.set_attn_implementation("eager")
        _made[key] = (ours.eval(), theirs.eval())
    return _made[key]


def tokens(rows=2, length=14):
    return torch.randint(VOCABULARY, (rows, length))


def positions(mask):
    return (mask.cumsum(-1) - 1).clamp(min=0)


def padded(side, rows=2, length=14):
    mask = torch.ones(rows, length, dtype=torch.int64)
    if side == "left":
        mask[0, :5] = 0
    elif side == "right":
        mask[1, -4:] = 0
    elif side == "both":
        mask[0, :3], mask[0, -2:], mask[1, :1] = 0, 0, 0
    return mask


def agree(made, expected, mask=None):
    """Logits of the tokens that are none of padding."""
    if mask is not None:
        made, expected = made[mask.bool()], expected[mask.bool()]
    assert (made - expected).abs().max() <= bound(expected)
