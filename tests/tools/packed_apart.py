"""Packed sequences are apart: what one of them holds reaches no result or gradient of another."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor | None]


def spoil(
    inputs: Tensors, ends: Sequence[int], which: int, change: Callable[[Tensor], Tensor | float]
) -> dict[str, Tensor | None]:
    """The inputs, with `change` of a token in the midst of a sequence, and of its states.

    Args:
        inputs: Of tokens [T, …], of sequences [N, …], or of neither, which stay; T, N and all other
            first dimensions differ.
        ends: N + 1 numbers, 0 … T.
        which: The sequence.
        change: Of what a token or a sequence has.

    Returns:
        Copies.
    """
    places = {ends[-1]: (ends[which] + ends[which + 1]) // 2, len(ends) - 1: which}
    changed = {name: None if t is None else t.clone() for name, t in inputs.items()}
    for t in changed.values():
        if t is not None and t.shape[0] in places:
            place = places[t.shape[0]]
            t[place] = change(t[place])
    return changed


def check_apart(
    run: Callable[[Tensors], Mapping[str, Tensor]],
    inputs: Tensors,
    changed: Tensors,
    ends: Sequence[int],
    which: int,
) -> None:
    """Asserts that all other sequences have the bits that they had, and this one has others.

    Args:
        run: Results and gradients by their names, [T, …] or [N, …] as inputs are; what is neither,
            a sum over all tokens, is not judged.
        inputs: Of which all results are finite.
        changed: The same, but for what is of the sequence.
        ends: N + 1 numbers, 0 … T.
        which: The sequence.
    """
    of_tokens = torch.zeros(ends[-1], dtype=torch.bool)
    of_tokens[ends[which] : ends[which + 1]] = True
    is_own = {ends[-1]: of_tokens, len(ends) - 1: torch.arange(len(ends) - 1) == which}
    want = run(inputs)
    for name, got in run(changed).items():
        own = is_own.get(got.shape[0])
        if own is None:
            continue
        assert want[name].isfinite().all(), name
        assert torch.equal(got[~own], want[name][~own]), f"{name}: of another sequence"
        assert not torch.equal(got[own], want[name][own]), f"{name}: as if nothing were there"


def check_case(
    cases: ModuleType,
    case: Any,
    inputs: Tensors,
    which: int,
    change: Callable[[Tensor], Tensor | float],
    only: Sequence[str],
    unchanged: Sequence[str],
) -> None:
    """Asserts that of a family's case: `change` of some inputs of one sequence reaches no other.

    Args:
        cases: The family's: `run_case` and `names`.
        case: One of its, packed.
        inputs: By their names, as `run_case` takes them.
        which: The sequence.
        change: Of what a token or a sequence has.
        only: The inputs that are changed.
        unchanged: The results that do not depend on these, and are not judged.
    """
    some = {name: inputs[name] for name in only}
    changed = {**inputs, **spoil(some, case.ends, which, change)}

    def run(given: Tensors) -> dict[str, Tensor]:
        results = cases.run_case(case, tuple(given.values()))
        named = zip(cases.names(case), results, strict=True)
        return {name: t for name, t in named if name not in unchanged}

    check_apart(run, inputs, changed, case.ends, which)
