"""Planted mistakes in one program: a number in the environment says which of them it makes.

Each is a statement, or some in a row, that stands beside the right ones behind an `if`; so dozens
cost the compiler little more than one. (With a declaration comes all that can use it.) What cannot
be so, such as a member's first value, or lies across another, gets a program of its own.
"""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from build_tools import precompiled, settings, simulator
from build_tools.settings import ROOT
from tests.mutation import syntax
from tests.mutation.bench import PRELUDE
from tests.mutation.source import Source, closing
from tests.tools import planted
from tests.tools.planted import Mistake

NUMBER = "planted_number.hpp"
HEADER = f"""\
#pragma once
#include <cstdlib>
inline const int planted_number = [] {{
  const char* const text = std::getenv("{planted.NUMBER}");
  return text != nullptr ? std::atoi(text) : 0;
}}();
"""
# A declaration, which whatever follows it in its block may need.
DECLARES = re.compile(
    r"(?:const|constexpr|auto|using)\b|"
    r"(?!if\b|return\b)[A-Za-z_][\w:]*(?:<[^;]*>)?[&*]?(?: const)? \w+ ?[;={\[(]"
)
ATTRIBUTE = re.compile(r"\[\[(?:un)?likely\]\]")  # of a branch, before its block
CONTROL = re.compile(r"(?:if(?: constexpr)?|for|while|switch) ?\(")


@dataclass
class Group:
    """Mistakes that one program can have, by their numbers, from 1."""

    mistakes: list[Mistake] = field(default_factory=list)
    regions: dict[str, dict[tuple[int, int], list[int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def takes(self, mistake: Mistake, region: tuple[int, int] | None) -> bool:
        """Adds a mistake, if it lies beside all of this group's."""
        if region is None:
            if not self.mistakes:
                self.mistakes.append(mistake)
            return len(self.mistakes) == 1 and self.mistakes[0] is mistake
        if self.mistakes and not self.regions:
            return False  # one that is alone
        there = self.regions[mistake.file]
        if any(_lie_across(region, other) for other in there):
            return False
        self.mistakes.append(mistake)
        there.setdefault(region, []).append(len(self.mistakes))
        return True

    def write(self, folder: Path) -> tuple[str, ...]:
        """Writes the sources that have the mistakes, and returns their texts."""
        texts = self._texts()
        shutil.rmtree(folder, ignore_errors=True)
        for file, text in texts.items():
            planted.write(folder / file, text)
        return tuple(texts.values())

    def _texts(self) -> dict[str, str]:
        if not self.regions:
            (alone,) = self.mistakes
            return {alone.file: alone.applied()}
        texts = {NUMBER: HEADER}
        for file, regions in self.regions.items():
            text = planted.source_of(file)
            texts[file] = f'#include "{NUMBER}"\n{self._render(text, 0, len(text), regions)}'
        return texts

    def _render(
        self, text: str, begin: int, end: int, regions: dict[tuple[int, int], list[int]]
    ) -> str:
        """A part of a source, with choices where the regions in it are."""
        parts = []
        for region in sorted(regions, key=lambda region: (region[0], -region[1])):
            if region[0] < begin:
                continue  # it lies within another, whose choice has it
            inner = {r: n for r, n in regions.items() if r != region and _lies_within(r, region)}
            right = self._render(text, *region, inner)
            parts += text[begin : region[0]], self._choice(text, *region, regions[region], right)
            begin = region[1]
        return "".join((*parts, text[begin:end]))

    def _choice(self, text: str, begin: int, end: int, numbers: list[int], right: str) -> str:
        parts = []
        for number in numbers:
            mistake = self.mistakes[number - 1]
            place = text.index(mistake.right)
            after = place + len(mistake.right)
            wrong = text[begin:place] + mistake.wrong + text[after:end]
            parts.append(f"if (::planted_number == {number}) {{\n{wrong}\n}} else ")
        return "".join(parts) + f"{{\n{right}\n}}"


def _lies_within(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _lie_across(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether each of two regions has a part that the other has, and one that it has not."""
    apart = one[1] <= other[0] or other[1] <= one[0]
    return not (apart or _lies_within(one, other) or _lies_within(other, one))


def build(program: Path, mistakes: tuple[Mistake, ...]) -> dict[str, tuple[Path, int]]:
    """A program with each of the mistakes, and its number in that; "" is one that makes none.

    The latter is that of several mistakes, under a number of none of them.
    """
    right, header = planted.job(program), precompiled.header(planted.job(ROOT / PRELUDE))
    jobs, names = [], {}
    for which, group in enumerate(groups(mistakes)):
        folder = settings.build_dir() / "mistakes" / f"{program.stem}_{which + 1}"
        group.write(folder)
        names |= {m.name: (which, n) for n, m in enumerate(group.mistakes, start=1)}
        jobs.append(planted.job_in(folder, right, header))
        if group.regions:
            names.setdefault("", (which, 0))
    if "" not in names:
        names[""] = len(jobs), 0
        jobs.append(right)
    programs = simulator.build_programs(jobs)
    return {name: (programs[which], number) for name, (which, number) in names.items()}


def groups(mistakes: Iterable[Mistake]) -> list[Group]:
    """As few groups as a first fit makes."""
    found: list[Group] = []
    for mistake in mistakes:
        region = region_of(mistake)
        if not any(group.takes(mistake, region) for group in found):
            found.append(Group())
            found[-1].takes(mistake, region)
    return found


def region_of(mistake: Mistake) -> tuple[int, int] | None:
    """The statements that a mistake changes, or nothing where they cannot be chosen at run time."""
    text = planted.source_of(mistake.file)
    code = ATTRIBUTE.sub(lambda found: " " * len(found[0]), Source(mistake.file, text).code)
    begin = text.index(mistake.right)
    end = begin + len(mistake.right)
    begin += len(mistake.right) - len(mistake.right.lstrip())
    end -= len(mistake.right) - len(mistake.right.rstrip())
    for function in syntax.functions(code):
        if function.parameters is not None and function.body < begin and end <= function.end:
            return _statements(code, function.body + 1, function.end, begin, end)
    return None


def _statements(code: str, first: int, last: int, begin: int, end: int) -> tuple[int, int] | None:
    """Those of the block [first, last) that [begin, end) touches, as far in as it lies in one."""
    touched, at = [], first
    while at < last:
        at += len(code[at:last]) - len(code[at:last].lstrip())
        if at >= last:
            break
        stop = _end(code, at)
        if at < end and begin < stop:
            touched.append((at, stop))
        at = stop
    if not touched:
        return None
    if len(touched) == 1:
        for inner in _bodies(code, *touched[0]):
            if inner[0] <= begin and end <= inner[1]:
                return _statements(code, *inner, begin, end)
    declares = any(DECLARES.match(code, start) for start, _ in touched)
    return touched[0][0], stop if declares else touched[-1][1]


def _bodies(code: str, begin: int, end: int) -> list[tuple[int, int]]:
    """The blocks in a statement: of braces their inside, of a lone statement that."""
    if code[begin] == "{":
        return [(begin + 1, end - 1)]
    if CONTROL.match(code, begin) is None:
        return []
    head = closing(code, code.index("(", begin)) + 1
    start = head + len(code[head:end]) - len(code[head:end].lstrip())
    stop = _end(code, start)
    otherwise = re.compile(r"\s*else\b\s*").match(code, stop, end)
    parts = [(start, stop), *([(otherwise.end(), end)] if otherwise else [])]
    return [(a + 1, b - 1) if code[a] == "{" else (a, b) for a, b in parts]


def _end(code: str, at: int) -> int:
    """Where the statement ends that begins at `at`."""
    if code[at] == "{":
        return closing(code, at) + 1
    if CONTROL.match(code, at):
        head = closing(code, code.index("(", at)) + 1
        stop = _end(code, head + len(code[head:]) - len(code[head:].lstrip()))
        otherwise = re.compile(r"\s*else\b\s*").match(code, stop)
        return _end(code, otherwise.end()) if otherwise else stop
    while code[at] != ";":
        at = closing(code, at) if code[at] in "([{" else at
        at += 1
    return at + 1
