"""Judges planted mistakes by the programs of the mutation tests, many of them by one build."""

import dataclasses
import re
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path

from build_tools import content, results
from tests.mutation.bench import POLICIES, SURVIVED, Bench, Verdict
from tests.mutation.program import Program
from tests.tools import planted, switched
from tests.tools.planted import Mistake


class Judge:
    """Says of each of some mistakes what becomes of it; several threads may ask.

    A program is built with all the mistakes that can be chosen at run time, when the first of them
    is to be judged by it. Those of its tests that find one, and under which policy, must find
    nothing where it makes none. What cannot be chosen so, or is not found as it should be, is built
    and judged alone: so sharing builds saves time and decides nothing.

    Args:
        bench: What builds programs and runs them.
        mistakes: Which.
        folder: Where the programs are built.
    """

    def __init__(self, bench: Bench, mistakes: Iterable[Mistake], folder: Path) -> None:
        self._bench, self._folder = bench, folder
        self._places: dict[Mistake, tuple[int, int]] = {}  # which sources, and the number in these
        self._texts: list[tuple[str, ...]] = []
        self._built: dict[tuple[int, Program], tuple[Path, str]] = {}
        self._unasked: dict[tuple[int, Program, str, str], str] = {}
        self._locks: dict[tuple[int, str], threading.Lock] = {}  # by the object of a kernel
        groups = [group for group in switched.groups(mistakes) if group.regions]
        for which, group in enumerate(groups):
            self._texts.append(group.write(folder / str(which)))
            for number, mistake in enumerate(group.mistakes, start=1):
                self._places[mistake] = which, number
                for program in planted.programs(mistake):
                    self._locks.setdefault((which, program.object), threading.Lock())

    def __call__(self, mistake: Mistake) -> Verdict:
        """The verdict on one of the mistakes."""
        if mistake in self._places:
            which, number = self._places[mistake]
            for program in planted.programs(mistake):
                verdict = self._ask(which, program, number, mistake.test)
                if verdict.noticed and re.search(mistake.found_as, verdict.said):
                    return verdict
                if verdict != SURVIVED:
                    break
        return planted.judge(self._bench, mistake)

    def _ask(self, which: int, program: Program, number: int, tests: str) -> Verdict:
        """The verdict that is kept under a hash of all that it depends on, or a new one."""
        world = self._bench.world(program, f"csrc/kernels/{program.family}")
        words = (*self._texts[which], str(number), tests, world)
        key = content.of_words(content.of_file(__file__), *words)
        kept = results.read(key)
        if kept is not None:
            return Verdict(**kept)
        executable, said = self._build(which, program)
        if said:
            return Verdict("compile", program.name, said)
        verdict = self._bench.run(executable, program, POLICIES, number, tests)
        if verdict.noticed:
            said = self._find_unasked(which, program, verdict)
            if said:
                return Verdict("compile", program.name, said)
        results.write(key, dataclasses.asdict(verdict))
        return verdict

    def _build(self, which: int, program: Program) -> tuple[Path, str]:
        """A program, or what the compiler says against it."""
        key = which, program
        with self._locks[which, program.object]:
            if key not in self._built:
                executable = self._folder / str(which) / program.name
                said = self._bench.build(self._folder / str(which), program, executable)
                _warn(program, said)
                self._built[key] = executable, said
        return self._built[key]

    def _find_unasked(self, which: int, program: Program, verdict: Verdict) -> str:
        """What is found as a mistake was where the program is to make none, or nothing."""
        policy = verdict.where.split(", ")[-1]
        key = which, program, policy, verdict.test
        with self._locks[which, program.object]:
            if key not in self._unasked:
                executable, _ = self._built[which, program]
                found = self._bench.run(executable, program, (policy,), tests=verdict.test)
                _warn(program, found.said)
                self._unasked[key] = found.said
        return self._unasked[key]


def _warn(program: Program, said: str) -> None:
    if said:
        warnings.warn(f"no build of {program.name} for several: {said}", stacklevel=3)
