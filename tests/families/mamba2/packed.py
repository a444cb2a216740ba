"""Packed sequences in mamba2's cases: what a function of one sequence gives, of all of them."""

import dataclasses
import itertools
from collections.abc import Callable

import torch
from torch import Tensor

# Of a case's tensors those that have tokens, and those that have a state of each sequence.
TOKENS, STATES = (0, 1, 3, 4, 6, 9), (8, 10)
OF_TOKENS = ("y", "dx", "ddt", "dB", "dC", "dz")
OF_STATES = {"final_state": 8, "dinitial_state": 10}  # and what passes through an empty sequence


def of_sequences(case, inputs, function: Callable[..., dict[str, Tensor]]) -> dict[str, Tensor]:
    """`function` of the case and the tensors of each sequence by itself, put together in float64.

    What is of heads is added up; what is of a token of no sequence is 0.
    """
    parts: list[dict[str, Tensor]] = []
    ends = list(itertools.pairwise(case.ends))
    for i, (start, end) in enumerate(ends):
        one = list(inputs)
        for j in TOKENS:
            one[j] = None if one[j] is None else one[j][None, start:end]
        for j in STATES:
            one[j] = None if one[j] is None else one[j][i : i + 1]
        if start < end:
            parts.append(function(dataclasses.replace(case, length=end - start, ends=()), one))
        else:
            states = OF_STATES.items() if case.states else ()
            parts.append({name: one[j].double() for name, j in states})
    found = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(parts)):
        if name in OF_STATES:
            found[name] = torch.cat([part[name] for part in parts if name in part])
        elif name in OF_TOKENS:
            known = [
                (at, part[name][0]) for at, part in zip(ends, parts, strict=True) if name in part
            ]
            whole = known[0][1].new_zeros(case.length, *known[0][1].shape[1:])
            for (start, end), t in known:
                whole[start:end] = t
            found[name] = whole
        else:
            found[name] = sum(part[name] for part in parts if name in part)
    return found
