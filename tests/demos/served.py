"""What the tests of demos/serve share: a small model, and what it gives alone."""

import copy
import functools
import json

import torch
from models import llama_checkpoint, llama_config
from models.decoding import Decoder, full_logits
from models.sampling import Sampling
from safetensors.torch import save_file

ENTRIES = {
    "model_type": "qwen3",  # with windows of 24 tokens in the second layer
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "use_sliding_window": True,
    "sliding_window": 24,
    "max_window_layers": 1,
    "eos_token_id": [7, 8],
}
SAMPLINGS = (Sampling(), Sampling(1.0), Sampling(0.7, top_k=20, top_p=0.9))


@functools.cache
def model(vocabulary: int = 101, head_dim: int = 16):
    """A model whose next token depends on all that came before."""
    entries = ENTRIES | {"vocab_size": vocabulary, "head_dim": head_dim}
    config = llama_config.config_of(entries, "config.json")
    made = llama_checkpoint.random(config, torch.float32, torch.device("cpu"))
    generator = torch.Generator().manual_seed(3)
    for parameter in made.parameters():
        parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return made


def in_bfloat16(device="cpu"):
    """One that the kernels take."""
    return copy.deepcopy(model(head_dim=64)).to(device, torch.bfloat16)


def save(folder, tokenizer):
    """A checkpoint folder of that model, with as many tokens as the tokenizer has."""
    made = model(tokenizer.get_vocab_size())
    folder.mkdir()
    entries = ENTRIES | {"vocab_size": tokenizer.get_vocab_size()}
    (folder / "config.json").write_text(json.dumps(entries))
    tensors = {name: part.clone() for name, part in llama_checkpoint.views(made).items()}
    save_file(tensors, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def alone(made, prompt, limit, sampling=None, seed=0, ends=None):
    """The tokens of a text that is generated with no other, over a cache without pages."""
    decoder = Decoder(made, 1, len(prompt) + limit, sampling or Sampling(), ends=ends)
    return [tokens[0] for tokens in decoder.generate([prompt], limit, seed)]


def check_likeliest(made, prompt, tokens, narrow=False):
    """Each token of a 16-bit model is the likeliest behind all before it, in float32, or a tie.

    A logit has 21 roundings a block to 8 bits and 5 more, a gap two of them; three deviations. With
    a narrow cache keys and values are rounded too, as test_narrow_cache.py says.
    """
    exact = copy.deepcopy(made).float()
    (logits,) = full_logits(exact, [list(prompt) + tokens])
    behind = logits[len(prompt) - 1 : -1]
    chosen = behind.gather(1, torch.tensor(tokens, device=behind.device)[:, None])
    limit = 2 * 3 * (21 * 2 + 5) ** 0.5 * 2**-9 * float(behind.abs().max())
    if narrow:
        spread = (behind - behind.mean(-1, keepdim=True)).square().mean().sqrt()
        limit += 2 * 5 * (2 * made.config.num_hidden_layers / 3) ** 0.5 * 2**-4 * float(spread)
    assert (behind.amax(1, keepdim=True) - chosen).max() <= limit
