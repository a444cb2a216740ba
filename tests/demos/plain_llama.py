"""A model of Llama's shape, written down plainly in PyTorch, for the tests of the trainer without
Python and torch: its parameters have Hugging Face's names, its embedding is the classifier, too."""

from dataclasses import dataclass
from pathlib import Path

import torch
from models import checkpoint
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class LlamaSizes:
    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int
    key_heads: int
    hidden: int
    theta: float = 10000.0
    epsilon: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head


class PlainLlama:
    def __init__(self, sizes: LlamaSizes):
        self.sizes = sizes
        width, keys, hidden = sizes.n_embd, sizes.key_heads * sizes.head_dim, sizes.hidden
        shapes = {"model.embed_tokens.weight": (sizes.vocab_size, width)}
        for layer in range(sizes.n_layer):
            block = {
                "self_attn.q_proj": (width, width),
                "self_attn.k_proj": (keys, width),
                "self_attn.v_proj": (keys, width),
                "self_attn.o_proj": (width, width),
                "mlp.gate_proj": (hidden, width),
                "mlp.up_proj": (hidden, width),
                "mlp.down_proj": (width, hidden),
                "input_layernorm": (width,),
                "post_attention_layernorm": (width,),
            }
            shapes |= {f"model.layers.{layer}.{name}.weight": s for name, s in block.items()}
        shapes["model.norm.weight"] = (width,)
        self.weights = {name: nn.Parameter(torch.ones(shape)) for name, shape in shapes.items()}

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return list(self.weights.items())

    def parameters(self) -> list[nn.Parameter]:
        return list(self.weights.values())

    def double(self) -> "PlainLlama":
        for parameter in self.parameters():
            parameter.data = parameter.data.double()
        return self

    def save(self, folder: Path) -> None:
        """As a checkpoint of Hugging Face's."""
        s = self.sizes
        entries = {
            "model_type": "llama",
            "vocab_size": s.vocab_size,
            "max_position_embeddings": s.n_positions,
            "hidden_size": s.n_embd,
            "intermediate_size": s.hidden,
            "num_hidden_layers": s.n_layer,
            "num_attention_heads": s.n_head,
            "num_key_value_heads": s.key_heads,
            "rope_theta": s.theta,
            "rms_norm_eps": s.epsilon,
            "tie_word_embeddings": True,
        }
        folder.mkdir()
        checkpoint.write_json(folder / "config.json", entries)
        state = {name: value.detach().float() for name, value in self.weights.items()}
        checkpoint.write_tensors(folder / "model.safetensors", state)

    def __call__(self, tokens: Tensor) -> Tensor:
        embedding = self.weights["model.embed_tokens.weight"]
        x = embedding[tokens]
        for layer in range(self.sizes.n_layer):
            prefix = f"model.layers.{layer}."
            x = x + self.attention(prefix, self.norm(prefix + "input_layernorm", x))
            y = self.norm(prefix + "post_attention_layernorm", x)
            gate, up = (self.linear(prefix + f"mlp.{name}_proj", y) for name in ("gate", "up"))
            x = x + self.linear(prefix + "mlp.down_proj", functional.silu(gate) * up)
        return self.norm("model.norm", x) @ embedding.T

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[name + ".weight"].T

    def norm(self, name: str, x: Tensor) -> Tensor:
        mean = x.square().mean(-1, keepdim=True)
        return x * (mean + self.sizes.epsilon).rsqrt() * self.weights[name + ".weight"]

    def attention(self, prefix: str, x: Tensor) -> Tensor:
        s, (batch, length) = self.sizes, x.shape[:2]

        def heads(name: str, count: int) -> Tensor:
            y = self.linear(prefix + f"self_attn.{name}_proj", x)
            return y.view(batch, length, count, s.head_dim).transpose(1, 2)

        q, k = self.turned(heads("q", s.n_head)), self.turned(heads("k", s.key_heads))
        v = heads("v", s.key_heads)
        k, v = (t.repeat_interleave(s.n_head // s.key_heads, dim=1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / s.head_dim**0.5
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        o = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return self.linear(prefix + "self_attn.o_proj", o.transpose(1, 2).flatten(2))

    def turned(self, x: Tensor) -> Tensor:
        half = self.sizes.head_dim // 2
        pairs = torch.arange(half, dtype=torch.float64)
        positions = torch.arange(x.size(2), dtype=torch.float64)
        angles = positions[:, None] * self.sizes.theta ** (-pairs / half)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
