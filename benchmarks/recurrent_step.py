"""What the benchmarks of one token of decode share: memory-bound, by the bytes of the states.

Minimum bytes: read and write what a step changes, read what else it needs, write its output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks import harness
from benchmarks.harness import OURS, Call, Case, Expected, Inputs

Step = Callable[[Inputs], torch.Tensor]  # one token: updates states in place, returns the output


@dataclass(frozen=True)
class Problem:
    """A step of one op.

    Attributes:
        op: Its name.
        shape: For people.
        inputs: Draws all tensors.
        states: The names of those that a step writes …
        rewritten: … and of those of them that change as a whole.
        step: The op.
        sizes: Of float64 inputs, the sum of the output's absolute terms.
    """

    op: str
    shape: str
    inputs: Callable[[int], Inputs]
    states: tuple[str, ...]
    rewritten: tuple[str, ...]
    step: Step
    sizes: Callable[[Inputs], torch.Tensor]

    def work(self) -> int:
        """The minimum bytes."""
        tensors, o = self.inputs(0), self.output()
        read = sum(t.numel() * t.element_size() for t in tensors.values())
        changed = [tensors[name] for name in self.rewritten]
        written = sum(t.numel() * t.element_size() for t in changed)
        return read + written + o.numel() * o.element_size()

    def output(self) -> torch.Tensor:
        """What torch's ops return."""
        import thunderkittens

        with thunderkittens.backend("torch"):
            return self.step(own_states(self.inputs(0), self.states))


def own_states(i: Inputs, states: tuple[str, ...]) -> Inputs:
    """The same, of which the states may be written."""
    return {name: t.clone() if name in states else t for name, t in i.items()}


def generator(seed: int) -> Callable[..., torch.Tensor]:
    """Draws normally distributed float32 of some sizes."""
    random = torch.Generator(harness.DEVICE).manual_seed(seed)
    return partial(torch.randn, device=harness.DEVICE, generator=random)


def exact(i: Inputs) -> Inputs:
    """The same numbers in float64."""
    return {name: t.double() if t.is_floating_point() else t.clone() for name, t in i.items()}


def expected(problem: Problem, i: Inputs) -> Expected:
    """The output in float64: some tens of roundings in float32, and one to its dtype."""
    import thunderkittens

    with thunderkittens.backend("torch"):
        o = problem.step(exact(i))
    of_sum = 64 * torch.finfo(torch.float32).eps
    half = torch.finfo(torch.bfloat16).eps / 2
    return [(o, half * o.abs() + of_sum * problem.sizes(exact(i)))]


def ours(problem: Problem, i: Inputs) -> Call:
    """The op, again and again on states of its own: the first call is the one that is checked."""
    given = own_states(i, problem.states)
    return lambda: (problem.step(given),)


def by_torch(problem: Problem, i: Inputs) -> Call:
    """The same by torch's own ops."""
    import thunderkittens

    given = own_states(i, problem.states)

    def run() -> tuple[torch.Tensor]:
        with thunderkittens.backend("torch"):
            return (problem.step(given),)

    return run


def cases(problems: Iterator[Problem], quick: bool) -> Iterator[Case]:
    """One of each problem; `quick` takes the first and the last."""
    some = list(problems)
    for problem in (some[0], some[-1]) if quick else some:
        yield Case(
            op=problem.op,
            shape=problem.shape,
            dtype="bf16",
            work=problem.work(),
            unit="TB/s",
            inputs=problem.inputs,
            expected=partial(expected, problem),
            contenders={OURS: partial(ours, problem), "torch": partial(by_torch, problem)},
            resident=problem.work() // 2,
        )
