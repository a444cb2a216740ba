"""How the next token is chosen: temperature, top-k and top-p as transformers means them.

A token weighs its probability, as an integer: so sums are exact, however they are added up, and one
number of [0, 1) means one token. All of it is on the device, and nothing is read back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.transfer import sent

UNITS = 2.0**40
"""What the likeliest token of a row weighs; one that is less likely by more than that, nothing."""

_PIECE = 256  # tokens that are looked at together: torch has one block for a row, however long


@dataclass(frozen=True)
class Sampling:
    """How to choose; the defaults are the likeliest token always.

    `temperature` 0 takes the likeliest. Otherwise logits are divided by it; then those below the
    `top_k`-th largest are dropped (0: none; equals of the k-th stay); then, of what is left, the
    least likely are dropped whose probabilities add up to at most 1 − `top_p` (1.0: none), of
    equals those that come first. At least one stays.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0


class RunningSums:
    """Sums up to each of a row's integers, [rows, count] ≥ 0, made where they are asked for."""

    def __init__(self, values: Tensor):
        self.last = values.shape[-1] - 1
        self._pieces = _in_pieces(values, 0)
        sums = self._pieces.sum(dim=-1)
        self._ends = sums.cumsum(dim=-1)
        self._starts = self._ends - sums
        self.total = self._ends[:, -1]

    def first_above(self, bound: Tensor) -> tuple[Tensor, Tensor]:
        """Of each row, where the sum first exceeds the row's bound [rows], and the one before it.

        Any place of the row where none does, as of logits that are not finite.
        """
        piece = torch.searchsorted(self._ends, bound[:, None], right=True)
        piece = piece.clamp(max=self._ends.shape[1] - 1)
        values = self._pieces.take_along_dim(piece[:, :, None], dim=1)[:, 0]
        sums = values.cumsum(dim=-1) + self._starts.gather(1, piece)
        place = torch.searchsorted(sums, bound[:, None], right=True).clamp(max=_PIECE - 1)
        before = sums.gather(1, place) - values.gather(1, place)
        return (piece * _PIECE + place)[:, 0].clamp(max=self.last), before[:, 0]


class Candidates:
    """What each token of a row weighs, once temperature, top-k and top-p have been applied.

    `weights`, int64 [rows, vocab_size], are those of `tokens` [rows, vocab_size] (None: of each
    place its own). With top-p the least likely come first, and those up to which weights add up to
    `dropped` [rows] at most are not taken.
    """

    def __init__(self, logits: Tensor, sampling: Sampling):
        self.tokens: Tensor | None = None
        count, kept = logits.shape[-1], sampling.top_k
        least = None
        if sampling.top_p < 1.0:
            logits, self.tokens = logits.sort(dim=-1, stable=True)
            largest = logits[:, -1:]
            if 0 < kept < count:
                least = logits[:, count - kept, None]
        else:
            largest = _in_pieces(logits, -torch.inf).amax(dim=-1).amax(dim=-1, keepdim=True)
            if 0 < kept < count:
                least = logits.topk(kept).values[:, -1:]
        scores = (logits - largest.float()).div_(sampling.temperature)
        if least is not None:
            scores.masked_fill_(logits < least, -torch.inf)
        self.weights = scores.exp_().mul_(UNITS).long()
        self.sums = RunningSums(self.weights)
        self.dropped = torch.zeros_like(self.sums.total)
        if sampling.top_p < 1.0:
            at_most = ((1 - sampling.top_p) * self.sums.total.double()).long()
            _, self.dropped = self.sums.first_above(at_most.clamp(max=self.sums.total - int(UNITS)))

    def token(self, uniform: Tensor) -> Tensor:
        """A token of each row, int64 [rows]: where weights pass that share, float64 [rows]."""
        share = (uniform * (self.sums.total - self.dropped)).long()  # less than that difference
        at, _ = self.sums.first_above(self.dropped + share)
        return at if self.tokens is None else self.tokens.gather(1, at[:, None])[:, 0]


def choose(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """A token of each row, int64 [rows], from logits [rows, vocab_size].

    `uniform`, float64 [rows], are random numbers of [0, 1).
    """
    if sampling.temperature == 0:
        return likeliest(logits)
    return Candidates(logits, sampling).token(uniform)


def likeliest(logits: Tensor) -> Tensor:
    """The first of the largest of each row, int64 [rows]."""
    largest, places = _in_pieces(logits, -torch.inf).max(dim=-1)
    piece = largest.argmax(dim=-1, keepdim=True)
    return (piece * _PIECE + places.gather(1, piece))[:, 0]


def _in_pieces(values: Tensor, nothing: float) -> Tensor:
    """[rows, count] as [rows, pieces, _PIECE], behind the end `nothing`."""
    short = -values.shape[-1] % _PIECE
    padded = pad(values, (0, short), value=nothing) if short else values
    return padded.unflatten(-1, (-1, _PIECE))


def uniforms(count: int, rows: int, seed: int) -> Tensor:
    """Random numbers of [0, 1), float64 [count, rows]: those of row r are a seed's of their own.

    Drawn on the CPU: a seed means the same on every device.
    """
    columns = []
    for row in range(rows):
        generator = torch.Generator().manual_seed((seed + row) % 2**63)
        columns.append(torch.rand(count, dtype=torch.float64, generator=generator))
    return torch.stack(columns, dim=1)


def choose_each(logits: Tensor, samplings: Sequence[Sampling], uniform: Tensor) -> Tensor:
    """`choose` where every row has a sampling of its own; rows with the same go together.

    Of logits that are not finite it is any token, but a token.
    """
    groups: dict[Sampling, list[int]] = {}
    for row, sampling in enumerate(samplings):
        groups.setdefault(sampling, []).append(row)
    if len(groups) == 1:
        chosen = choose(logits, samplings[0], uniform)
    else:
        chosen = torch.empty(len(samplings), dtype=torch.int64, device=logits.device)
        for sampling, rows in groups.items():
            index = sent(rows, torch.int64, logits.device)
            chosen[index] = choose(logits[index], sampling, uniform[index])
    return chosen.clamp(min=0, max=logits.shape[-1] - 1)
