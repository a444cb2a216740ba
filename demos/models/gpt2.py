"""GPT-2 on thunderkittens ops, with the names and layouts of Hugging Face checkpoints.

    x = wte[token] + wpe[position]                                    x: [B, S, n_embd]
    for each block:   x = x + attention(layer_norm(x));   x = x + mlp(layer_norm(x))
    logits = layer_norm(x) @ wteᵀ                                     logits: [B, S, vocab_size]

The layer norms and the attention are thunderkittens ops, or torch's own (`ops=TORCH_OPS`), so that
the two can be compared on one set of weights. Everything else is torch. For training there are
`TRAINING_OPS`: the residual is added in the norm's own pass, and the GELU is ours too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import thunderkittens
from thunderkittens.nn import AddLayerNorm, LayerNorm


@dataclass(frozen=True)
class Config:
    """The entries of a Hugging Face GPT2Config that matter here, under their names there."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None  # width of the MLP; None: 4 * n_embd
    layer_norm_epsilon: float = 1e-5
    activation_function: str = "gelu_new"
    tie_word_embeddings: bool = True
    embd_pdrop: float = 0.0  # dropout of the embeddings, in training
    resid_pdrop: float = 0.0  # dropout of each block's two outputs, in training

    @property
    def mlp_width(self) -> int:
        """Width of the MLP's hidden layer."""
        return self.n_inner or 4 * self.n_embd


def torch_attention(query: Tensor, key: Tensor, value: Tensor, *, causal: bool) -> Tensor:
    """The part of thunderkittens.attention that GPT-2 needs, with torch's own function.

    [B, S, H, D] each; the causal mask is aligned to the bottom right corner.
    """
    queries, keys = query.size(1), key.size(1)
    mask = None
    if causal and 1 < queries < keys:
        mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries)
    out = functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        is_causal=causal and queries == keys,
    )
    return out.transpose(1, 2)


Attend = Callable[..., Tensor]  # of query, key and value, [B, S, H, D], and `causal`


class Ops(NamedTuple):
    """Who computes the layer norms, the attention and the MLP, with the tanh form of GELU."""

    layer_norm: type[nn.Module]  # an AddLayerNorm adds to the residual stream, too
    attention: Attend
    gelu: Callable[..., Tensor] = functional.gelu
    # Both linear layers and the GELU between them; None: one after the other.
    mlp: Callable[..., Tensor] | None = None
    # The same of [B, S, 3, H, D], whose gradient is then one tensor; None: attention of its parts.
    attention_qkvpacked: Callable[..., Tensor] | None = None


THUNDERKITTENS_OPS = Ops(LayerNorm, thunderkittens.attention)
TORCH_OPS = Ops(nn.LayerNorm, torch_attention)
TRAINING_OPS = Ops(
    AddLayerNorm,
    thunderkittens.attention,
    thunderkittens.gelu,
    thunderkittens.mlp,
    thunderkittens.attention_qkvpacked,
)


class KVCache:
    """Keys and values of the tokens seen so far, in memory that is allocated once.

    `keys` and `values` are [n_layer, B, n_positions, H, D]; the first `length` are filled.
    """

    def __init__(self, config: Config, batch: int, dtype: torch.dtype, device: torch.device):
        heads, head_dim = config.n_head, config.n_embd // config.n_head
        shape = (config.n_layer, batch, config.n_positions, heads, head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Stores new [B, S, H, D] after `length`; returns all so far, [B, length + S, H, D]."""
        end = self.length + key.size(1)
        self.keys[layer, :, self.length : end] = key
        self.values[layer, :, self.length : end] = value
        return self.keys[layer, :, :end], self.values[layer, :, :end]

    def attend(self, layer: int, attention: Attend, *heads: Tensor) -> Tensor:
        """Attention of new query, key and value, [B, S, H, D], to all tokens so far."""
        query, key, value = heads
        return attention(query, *self.append(layer, key, value), causal=True)

    def reset(self) -> None:
        """Forgets all tokens."""
        self.length = 0


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out], as GPT-2's checkpoints store it."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        y = torch.addmm(self.bias, x.flatten(0, -2), self.weight)
        return y.view(*x.shape[:-1], y.size(-1))


class Attention(nn.Module):
    """Causal self-attention over the tokens given and those in the cache."""

    def __init__(self, config: Config, ops: Ops, layer: int):
        super().__init__()
        self.c_attn = Conv1D(config.n_embd, 3 * config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)
        self.heads, self.attention, self.layer = config.n_head, ops.attention, layer
        self.attention_qkvpacked = ops.attention_qkvpacked

    def forward(self, x: Tensor, cache: KVCache | None) -> Tensor:
        """[B, S, n_embd] to the same."""
        qkv = self.c_attn(x).unflatten(-1, (3, self.heads, -1))
        if cache is not None:
            y = cache.attend(self.layer, self.attention, *qkv.unbind(2))
        elif self.attention_qkvpacked is not None:
            y = self.attention_qkvpacked(qkv, causal=True)
        else:
            y = self.attention(*qkv.unbind(2), causal=True)
        return self.c_proj(y.flatten(2))


class MLP(nn.Module):
    """Two linear layers with GPT-2's tanh form of GELU between them."""

    def __init__(self, config: Config, ops: Ops):
        super().__init__()
        self.gelu, self.mlp = ops.gelu, ops.mlp
        self.c_fc = Conv1D(config.n_embd, config.mlp_width)
        self.c_proj = Conv1D(config.mlp_width, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, n_embd] to the same."""
        if self.mlp is None:
            return self.c_proj(self.gelu(self.c_fc(x), approximate="tanh"))
        layers = (t for c in (self.c_fc, self.c_proj) for t in (c.weight.t(), c.bias))
        return self.mlp(x, *layers, approximate="tanh")


def new_norm(config: Config, ops: Ops, dropout: float) -> nn.Module:
    """A layer norm, and of what it adds to the residual stream the share that is dropped."""
    adds = {"dropout_p": dropout} if issubclass(ops.layer_norm, AddLayerNorm) else {}
    return ops.layer_norm(config.n_embd, eps=config.layer_norm_epsilon, **adds)


def add_and_normalise(
    norm: nn.Module, x: Tensor, stream: Tensor | None, dropout: nn.Dropout
) -> tuple[Tensor, Tensor]:
    """The norm of the residual stream with dropout(x) added to it, and the stream; all [B, S, n].

    Without a stream it begins with x, of which nothing is dropped.
    """
    if isinstance(norm, AddLayerNorm):
        return norm(x, stream)
    stream = x if stream is None else stream + dropout(x)
    return norm(stream), stream


class Block(nn.Module):
    """Attention, then MLP, each on the normalised residual stream and added back to it."""

    def __init__(self, config: Config, ops: Ops, layer: int):
        super().__init__()
        self.ln_1 = new_norm(config, ops, config.resid_pdrop if layer > 0 else 0.0)
        self.attn = Attention(config, ops, layer)
        self.ln_2 = new_norm(config, ops, config.resid_pdrop)
        self.mlp = MLP(config, ops)
        self.dropout = nn.Dropout(config.resid_pdrop)

    def forward(
        self, x: Tensor, stream: Tensor | None, cache: KVCache | None
    ) -> tuple[Tensor, Tensor]:
        """What is to be added to the residual stream, and the stream: [B, S, n_embd], as given."""
        y, stream = add_and_normalise(self.ln_1, x, stream, self.dropout)
        y, stream = add_and_normalise(self.ln_2, self.attn(y, cache), stream, self.dropout)
        return self.mlp(y), stream


class Transformer(nn.Module):
    """The embeddings, the blocks and the last layer norm."""

    def __init__(self, config: Config, ops: Ops):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.h = nn.ModuleList(Block(config, ops, layer) for layer in range(config.n_layer))
        self.ln_f = new_norm(config, ops, config.resid_pdrop)
        self.dropout = nn.Dropout(config.embd_pdrop)
        self.last_dropout = nn.Dropout(config.resid_pdrop)

    def forward(
        self, tokens: Tensor, cache: KVCache | None, positions: Tensor | None = None
    ) -> Tensor:
        """Tokens [B, S] to the last hidden state [B, S, n_embd]; positions [S], if others."""
        if positions is None:
            start = cache.length if cache is not None else 0
            positions = torch.arange(start, start + tokens.size(1), device=tokens.device)
        x, stream = self.dropout(self.wte(tokens) + self.wpe(positions)), None
        for block in self.h:
            x, stream = block(x, stream, cache)
        if cache is not None:
            cache.length += tokens.size(1)
        return add_and_normalise(self.ln_f, x, stream, self.last_dropout)[0]


class GPT2(nn.Module):
    """The language model. Its state_dict has the keys and shapes of a Hugging Face checkpoint."""

    def __init__(self, config: Config, ops: Ops = THUNDERKITTENS_OPS):
        super().__init__()
        self.config = config
        self.transformer = Transformer(config, ops)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(
        self, tokens: Tensor, cache: KVCache | None = None, positions: Tensor | None = None
    ) -> Tensor:
        """Logits of every position, [B, S, vocab_size]; with a cache of the last one, [B, 1, …]."""
        x = self.transformer(tokens, cache, positions)
        if cache is not None:
            x = x[:, -1:]
        tied = self.config.tie_word_embeddings
        return functional.linear(x, self.transformer.wte.weight if tied else self.lm_head.weight)

    @torch.no_grad()
    def initialize(self, generator: torch.Generator | None = None) -> None:
        """GPT-2's start: N(0, 0.02), and less for what is added to the residual stream."""
        residual_std = 0.02 * (2 * self.config.n_layer) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                std = residual_std if name.endswith("c_proj.weight") else 0.02
                parameter.normal_(0.0, std, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()
            else:  # a layer norm's weight
                parameter.fill_(1.0)


def sample(logits: Tensor, temperature: float, top_k: int, generator: torch.Generator) -> int:
    """One token from `logits` [vocab_size]: the likeliest at temperature 0, else at random.

    `top_k` > 0 keeps that many candidates. Drawn on the CPU: a seed means the same everywhere.
    """
    if temperature == 0:
        return int(logits.argmax())
    logits = logits.cpu()
    if 0 < top_k < logits.numel():
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    probabilities = torch.softmax((logits - logits.max()) / temperature, dim=-1)
    return int(torch.multinomial(probabilities, 1, generator=generator))


@torch.inference_mode()
def generate(
    model: GPT2,
    prompt: list[int],
    temperature: float = 0.0,
    top_k: int = 0,
    seed: int = 0,
    cache: KVCache | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """Yields (token, the fp32 logits [vocab_size] it was drawn from), without end.

    The prompt goes through the model at once, then each new token alone, against the cache. When
    the positions run out, the last half of the text starts a new cache. (`cache` may be any with
    KVCache's `length`, `attend` and `reset`, empty; None for a KVCache.)
    """
    weight = model.transformer.wte.weight
    positions = model.config.n_positions
    generator = torch.Generator().manual_seed(seed)
    text, pending = list(prompt), list(prompt)
    cache = cache or KVCache(model.config, 1, weight.dtype, weight.device)
    while True:
        if cache.length + len(pending) > positions:
            cache.reset()
            pending = text[-max(1, positions // 2) :]
        tokens = torch.tensor([pending], device=weight.device)
        logits = model(tokens, cache)[0, -1].float()
        pending = [sample(logits, temperature, top_k, generator)]
        text += pending
        yield pending[0], logits
