"""The mistakes: each operator proposes changes of one place of a kernel's source.

Synchronisation is what the issue of a pipeline is, so its calls are deleted, freed of their guards,
weakened, and given another phase, stage, count, number of bytes or barrier. Layouts and masks are
arithmetic: each constant, subscript, coordinate, bound and comparison is made another one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.mutation.source import Source, closing, split, stripped

# Calls that order threads and copies, move their cursors, or start what must be waited for.
SYNCHRONISATION = (
    r"(?:shared\.|s\.|order::|arch::|tma::|warpgroup::|rows\.)*\b(?:"
    r"wait|arrive|expect|expect_bytes|wait_empty|wait_full|release_after_mma|release_after_loads|release_[kqv]|skip_block|advance|"
    r"start|finish|sync|sync_block|sync_warp|named_barrier_sync|named_barrier_arrive|"
    r"mma_fence|mma_commit_group|mma_async_wait|load_async|store_async|store_commit_group|"
    r"store_async_read_wait|store_async_wait|init_semaphore|init|one|atomic_exchange|cp_async_wait|cp_async_commit|"
    r"lower_registers|raise_registers|request|fence_\w+|issue_qk|issue_pv|add(?=\(sums\)))"
)
STATEMENT = re.compile(rf"(?:\w+(?:\[[\w.]+\])?\.)*{SYNCHRONISATION}(?:<[^;()]*>)?\(")
BARRIER = re.compile(r"(?:arch::sync_block|arch::named_barrier_sync|warpgroup::sync)\(")
INTEGER = re.compile(r"(?<![\w.'])\d+(?![\w.'])")
COMPARISON = re.compile(r" (<=|>=|==|!=|<|>) ")
OPPOSITE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
CONDITION = re.compile(r"\bif \(")
# Their last argument but `from_end`: (callee, from_end, by how much it is changed, what it is)
COUNTS = (
    (r"\binit_semaphore\(", 1, 1, "arrivals"),
    (r"_ring\.init\(", 1, 1, "arrivals"),
    (r"\bexpect(?:_bytes)?\(", 1, 16, "bytes"),
    (r"\bwarpgroup::sync\(", 1, 1, "barrier"),
    (r"\bnamed_barrier_(?:sync|arrive)\(", 2, 1, "barrier"),
    (r"\bnamed_barrier_(?:sync|arrive)\(", 1, 32, "threads"),
    (r"\b(?:right_fill|left_fill|tril|triu)\(", 2, 1, "bound"),
)
DECLARED = re.compile(
    r"Config::\w+|F::\w+|Inputs|Outputs|Stages|Count|kMaxWarps"
)  # an array's length
COORDINATES = re.compile(r"\b(?:load_async|store_async|load|store)(?:<[^;()]*>)?\(")


@dataclass(frozen=True)
class Mutant:
    """One change of one place.

    Attributes:
        file: The source, as #include has it.
        operator: The kind of mistake.
        line: The number of the line.
        context: The line, with what is replaced «so».
        begin, end: The range of the text that is replaced.
        before, after: What stands there, and what then does.
    """

    file: str
    operator: str
    line: int
    context: str
    begin: int
    end: int
    before: str
    after: str

    @property
    def plain_line(self) -> str:
        """The line as it is."""
        return self.context.replace("«", "").replace("»", "")

    @property
    def change(self) -> str:
        """E.g. `constant: 64 → 65`."""
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.operator}: {before} → {after or 'nothing'}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.change}"

    def applied(self, text: str) -> str:
        """The source with the mistake in it."""
        return text[: self.begin] + self.after + text[self.end :]


def mutants(source: Source) -> list[Mutant]:
    """All of a source's mutants, in the order of their places; equal texts once."""
    found = [mutant for operator in OPERATORS for mutant in operator(source)]
    distinct = {mutant.applied(source.text): mutant for mutant in reversed(found)}
    distinct.pop(source.text, None)
    return sorted(distinct.values(), key=lambda one: (one.begin, one.end, one.after))


def _change(source: Source, operator: str, place: tuple[int, int], after: str) -> Mutant:
    begin, end = place
    return Mutant(
        source.name,
        operator,
        source.line_of(begin),
        source.line_at(begin, end),
        begin,
        end,
        source.text[begin:end],
        after,
    )


def _statements(source: Source) -> Iterator[tuple[int, int]]:
    """The synchronisation calls that are statements, without their semicolons."""
    for match in STATEMENT.finditer(source.code):
        end = closing(source.code, match.end() - 1) + 1
        if source.code[end : end + 1] == ";":
            yield match.start(), end


def _plus(text: str, step: int) -> str:
    """A sum as one would write it."""
    if text.isdigit():
        return str(int(text) + step)
    return f"({text}) {'+' if step > 0 else '-'} {abs(step)}"


def deleted(source: Source) -> Iterator[Mutant]:
    for place in _statements(source):
        yield _change(source, "delete", place, "")
    for match in re.finditer(r"\b\w+ \^= 1(?=;)", source.code):
        yield _change(source, "delete", match.span(), "")


def unguarded(source: Source) -> Iterator[Mutant]:
    """A condition that always or never holds; those of the preprocessor's kind are left alone."""
    for match in CONDITION.finditer(source.code):
        place = match.end(), closing(source.code, match.end() - 1)
        for constant in ("true", "false"):
            yield _change(source, "condition", place, constant)


def weakened(source: Source) -> Iterator[Mutant]:
    """A wait that lets one more group be under way; a barrier of each warp alone."""
    for match in re.finditer(r"\w*_wait<([^<>]+)>(?=\()", source.code):
        yield _change(source, "weaken", match.span(1), _plus(match[1], 1))
    for match in BARRIER.finditer(source.code):
        place = match.start(), closing(source.code, match.end() - 1) + 1
        yield _change(source, "weaken", place, "arch::sync_warp()")


def unfenced(source: Source) -> Iterator[Mutant]:
    """A stage that ordinary loads have read, given back as if wgmma alone had."""
    for begin, end in _statements(source):
        text = source.text[begin:end]
        if "release_after_loads" not in text:
            continue
        arrival = re.sub(r"release_after_loads(?:<[^;()]*>)?", "release_after_mma", text)
        after = f"{{ arch::sync_warp(); if (arch::lane_id() == 0) {arrival}; }}"
        yield _change(source, "proxy", (begin, end), after)


def phases(source: Source) -> Iterator[Mutant]:
    for match in re.finditer(r"\bwait\(", source.code):
        arguments = split(source.code, match.end(), closing(source.code, match.end() - 1))
        if len(arguments) == 2:
            begin, end = arguments[1]
            yield _change(source, "phase", (begin, end), f"{source.text[begin:end]} ^ 1")
    for match in re.finditer(r"\b(?:\w*phase|half) = ([01])(?=;)", source.code):
        yield _change(source, "phase", match.span(1), str(1 - int(match[1])))


def stages(source: Source) -> Iterator[Mutant]:
    for match in re.finditer(r"\b\w+\.stage(?=\])", source.code):
        other = f"({match[0]} + 1) % Config::stages"
        yield _change(source, "stage", match.span(), other)


def counts(source: Source) -> Iterator[Mutant]:
    for callee, from_end, step, what in COUNTS:
        for match in re.finditer(callee, source.code):
            arguments = split(source.code, match.end(), closing(source.code, match.end() - 1))
            if len(arguments) >= from_end:
                place = arguments[-from_end]
                text = source.text[slice(*place)]
                yield _change(source, what, place, _plus(text, step))
                yield _change(source, what, place, _plus(text, -step))


def constants(source: Source) -> Iterator[Mutant]:
    """Every integer, one more, one less, and twice as much where it is a size.

    The number of groups that a wait leaves is not one of them: to leave fewer is right as well.
    """
    for match in INTEGER.finditer(source.code):
        if re.search(r"_wait<[^<>()]*$", source.code[: match.start()]):
            continue
        value = int(match[0])
        others = [value + 1, value - 1] + [2 * value] * (value >= 4)
        for other in others:
            yield _change(source, "constant", match.span(), str(other))


def comparisons(source: Source) -> Iterator[Mutant]:
    for match in COMPARISON.finditer(source.code):
        yield _change(source, "comparison", match.span(1), OPPOSITE[match[1]])


def subscripts(source: Source) -> Iterator[Mutant]:
    """The element after the one that is meant."""
    for match in re.finditer(r"(?<=[\w\]])\[(?!\])", source.code):
        begin, end = match.end(), closing(source.code, match.start())
        index = source.text[begin:end]
        if not index.endswith(".stage") and not DECLARED.fullmatch(index):
            yield _change(source, "subscript", (begin, end), _plus(index, 1))


def coordinates(source: Source) -> Iterator[Mutant]:
    """The tile after the one that is meant, in each direction."""
    for match in COORDINATES.finditer(source.code):
        arguments = split(source.code, match.end(), closing(source.code, match.end() - 1))
        begin, end = arguments[-1]
        if source.code[begin] != "{":
            continue
        for place in split(source.code, begin + 1, end - 1):
            name = re.match(r"\.\w+ = ", source.code[slice(*place)])
            place = stripped(source.code, place[0] + (name.end() if name else 0), place[1])
            yield _change(source, "coordinate", place, _plus(source.text[slice(*place)], 1))


OPERATORS = (
    deleted,
    unguarded,
    weakened,
    unfenced,
    phases,
    stages,
    counts,
    constants,
    comparisons,
    subscripts,
    coordinates,
)
