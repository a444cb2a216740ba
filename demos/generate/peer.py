"""What a model of Llama's shape is compared with: transformers' own, with torch's attention."""

import math
from collections.abc import Iterator, Sequence

import torch
from models.checkpoint import CheckpointError
from models.decoding import full_logits
from models.llama import Llama
from models.llama_checkpoint import views
from torch import Tensor


class Peer:
    """transformers' model of the same configuration on the very same weights, none of them copied.

    Attention is torch's (`attn_implementation="sdpa"`), the cache the one that it has by default.
    `entries` are those of config.json.
    """

    def __init__(self, model: Llama, entries: dict):
        try:
            import transformers
        except ImportError as error:
            raise CheckpointError(f"--compare needs transformers ({error})") from error
        self.device, self._cache = model.device, transformers.DynamicCache
        config = transformers.AutoConfig.for_model(**entries)
        options = {"dtype": model.dtype, "attn_implementation": "sdpa"}
        with torch.device("meta"):
            self.model = transformers.AutoModelForCausalLM.from_config(config, **options).eval()
        self.model.load_state_dict(views(model), strict=False, assign=True)
        self.model.tie_weights()
        with torch.device(model.device):  # its tables are no part of the weights
            self.model.model.rotary_emb = type(self.model.model.rotary_emb)(config)

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Sequence[int]], limit: int) -> Iterator[list[int]]:
        """Yields the likeliest next token of each row, `limit` times; short prompts are padded."""
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        rows = [[0] * pad + list(row) for pad, row in zip(padding, prompts, strict=True)]
        tokens = torch.tensor(rows, device=self.device)
        known = torch.tensor(padding, device=self.device)[:, None]
        places = torch.arange(longest + limit, device=self.device)[None]
        positions = (places - known).clamp(min=0)
        mask = (places >= known).long() if any(padding) else None
        cache, end = self._cache(config=self.model.config), longest
        for _ in range(limit):
            begin = end - tokens.shape[1]
            logits = self.model(
                tokens,
                attention_mask=None if mask is None else mask[:, :end],
                position_ids=positions[:, begin:end],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits
            tokens = logits[:, -1:].argmax(dim=-1)
            end += 1
            yield tokens[:, 0].tolist()

    @torch.inference_mode()
    def logits(self, text: Sequence[int]) -> Tensor:
        """The logits behind a text, float32 [vocab_size]."""
        tokens = torch.tensor([list(text)], device=self.device)
        return self.model(tokens, use_cache=False, logits_to_keep=1).logits[0, -1].float()


def tie_bound(logits: Tensor, model: Llama) -> float:
    """How far rounding alone can move the gap of two logits, between two runs of one model.

    As in demos/generate/generate.py, where it is derived, with the roundings of these blocks: two
    norms of two each, four products, q and k turned (five, with the tables' where they are 16-bit),
    attention and its weights, silu and its product, two sums: 19 a block, and 3 for the ends.

    bound = 4 · √r · √(u² + n · u32²) · s + 2 · u · m.
    """
    unit, unit32 = torch.finfo(model.dtype).eps / 2, torch.finfo(torch.float32).eps / 2
    roundings = 19 * model.config.num_hidden_layers + 3
    rounding = math.sqrt(unit**2 + model.config.intermediate_size * unit32**2)
    spread = float((logits - logits.mean()).square().mean().sqrt())
    return 4 * math.sqrt(roundings) * rounding * spread + 2 * unit * float(logits.abs().max())


def difference(
    model: Llama, peer: Peer, prompt: list[int], ours: list[int], theirs: list[int]
) -> tuple[int, float, float] | None:
    """The first token at which two greedy texts differ: its number, the gap, and a tie's bound.

    None where they do not. The gap is how far apart the logits of the two tokens are, in the run
    that has them further apart: a tie if it is within the bound.
    """
    pairs = list(zip(ours, theirs, strict=False))
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if at is None:
        return None
    (a, b), text = pairs[at], [*prompt, *ours[:at]]
    own = full_logits(model, [text], last=True)[0][0].float()
    other = peer.logits(text)
    gap = max(float(own[a] - own[b]), float(other[b] - other[a]), 0.0)
    return at, gap, tie_bound(other, model)
