"""A source as the operators see it, and what they make of it: mutants."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.mutation import roles, syntax
from tests.mutation.source import Source
from tests.mutation.syntax import Call, Function


@dataclass(frozen=True)
class Mutant:
    """One change of one place.

    Attributes:
        file: The source, as #include has it.
        function: The function or class that the place is in, with its classes, or "".
        operator: The kind of place: its role.
        number, count: Which of the places of its kind in that function, from 1, and of how many.
        change: What is done to it, in a word: `deleted`, `flipped`, `more`.
        line: The number of the line.
        context: The line, with what is replaced «so».
        begin, end: The range of the text that is replaced.
        before, after: What stands there, and what then does.
    """

    file: str
    function: str
    operator: str
    number: int
    count: int
    change: str
    line: int
    context: str
    begin: int
    end: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """What it is in its function: `wait deleted`, or `wait 2/3 deleted` of several."""
        which = f" {self.number}/{self.count}" if self.count > 1 else ""
        return f"{self.operator}{which} {self.change}"

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        function = f"{self.function}: " if self.function else ""
        return f"{self.file}:{self.line}: {function}{self.name}: {before} → {after or 'nothing'}"

    def applied(self, text: str) -> str:
        """The source with the mistake in it."""
        return text[: self.begin] + self.after + text[self.end :]


@dataclass(frozen=True)
class Change:
    """What an operator proposes: of which kind the place is, where, what is done, the new text."""

    operator: str
    begin: int
    end: int
    change: str
    after: str


class Code:
    """A source, its functions, and the roles of its calls.

    Attributes:
        source: What is mutated.
        functions: Its functions and classes.
        roles: Those of all that it may call.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.functions = syntax.functions(source.code)
        self.roles = roles.roles_of(str(Path(source.name).parent), source.code)

    @cached_property
    def calls(self) -> list[tuple[Call, Function | None, str]]:
        """Its calls, each with its function and the text of that."""
        heads = [(one.begin, one.body) for one in self.functions]
        found = []
        for call in syntax.calls(self.source.code):
            if not any(begin <= call.begin < body for begin, body in heads):
                function = self._function(call.begin)
                text = self.source.code[function.begin : function.end] if function else ""
                found.append((call, function, text))
        return found

    def _function(self, offset: int) -> Function | None:
        around = [one for one in self.functions if one.begin <= offset <= one.end]
        return next((one for one in reversed(around) if one.parameters is not None), None)

    def statements(self) -> Iterator[tuple[Call, frozenset[str]]]:
        """The calls that are statements, without their semicolons, and have roles."""
        code = self.source.code
        for call, function, text in self.calls:
            before = code[: call.begin].rstrip()
            alone = before[-1:] in ";{}):" or before.endswith(("return", "else"))
            if alone and code[call.end : call.end + 1] == ";":
                found = self.roles.of(call, function, text)
                if found:
                    yield call, frozenset(found)

    def arguments(self) -> Iterator[tuple[tuple[int, int], str]]:
        """The arguments that have a role, and their roles."""
        for call, function, text in self.calls:
            for number, what in self.roles.arguments(call, function, text).items():
                yield call.arguments[number], what


def numbered(code: Code, changes: Iterable[Change]) -> list[Mutant]:
    """The mutants that some changes make, in the order of their places; equal texts once."""
    source = code.source
    distinct: dict[str, Change] = {}
    for one in changes:
        text = source.text[: one.begin] + one.after + source.text[one.end :]
        distinct.setdefault(text, one)
    distinct.pop(source.text, None)
    ordered = sorted(distinct.values(), key=lambda one: (one.begin, one.end, one.after))
    kinds = {one: (syntax.enclosing(code.functions, one.begin), one.operator) for one in ordered}
    places = dict.fromkeys((kinds[one], one.begin, one.end) for one in ordered)
    counts = Counter(kind for kind, *_ in places)
    so_far: Counter[tuple[str, str]] = Counter()
    for place in places:
        so_far[place[0]] += 1
        places[place] = so_far[place[0]]
    return [
        Mutant(
            file=source.name,
            function=kinds[one][0],
            operator=one.operator,
            number=places[kinds[one], one.begin, one.end] or 0,
            count=counts[kinds[one]],
            change=one.change,
            line=source.line_of(one.begin),
            context=source.line_at(one.begin, one.end),
            begin=one.begin,
            end=one.end,
            before=source.text[one.begin : one.end],
            after=one.after,
        )
        for one in ordered
    ]
