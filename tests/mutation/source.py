"""Reads C++ as far as mutation needs it: what is code, and where a bracket closes."""

import re
from dataclasses import dataclass
from functools import cached_property

# Never mutated: comments, text, preprocessor lines, and what only the compiler reads.
NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'|^[ \t]*\#[^\n]*""",
    re.DOTALL | re.MULTILINE,
)
COMPILE_TIME = re.compile(r"\b(?:static_assert|__launch_bounds__)\s*\(|^template <", re.MULTILINE)
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


@dataclass(frozen=True)
class Source:
    """The text of a source.

    Attributes:
        name: Its path, as #include has it: `kernels/norm/row.cuh`.
        text: All of it.
        left_out: Names of its constants and functions that are not device code.
    """

    name: str
    text: str
    left_out: tuple[str, ...] = ()

    @cached_property
    def code(self) -> str:
        """The text with everything blank that is not to be mutated, at the same offsets."""
        text = NOT_CODE.sub(_blank, self.text)
        for match in COMPILE_TIME.finditer(text):
            text = _without(text, match.start(), closing(text, match.end() - 1) + 1)
        for name in self.left_out:
            declared = re.search(rf"static constexpr \w+ {name}\b", text)
            if declared is None:
                raise ValueError(f"{self.name} declares no {name}")
            ends = re.compile(r";|\{").search(text, declared.end()).start()
            end = ends if text[ends] == ";" else closing(text, ends)
            text = _without(text, declared.start(), end + 1)
        return text

    def line_of(self, offset: int) -> int:
        """The number of the line, from 1."""
        return self.text.count("\n", 0, offset) + 1

    def line_at(self, begin: int, end: int) -> str:
        """The first line of a range, without its indentation, and with the range «so»."""
        first = self.text.rfind("\n", 0, begin) + 1
        last = self.text.find("\n", begin)
        end = min(end, last)
        parts = self.text[first:begin], self.text[begin:end], self.text[end:last]
        return "{}«{}»{}".format(*parts).strip()


def closing(code: str, opening: int) -> int:
    """Where the bracket at `opening` closes.

    Between angle brackets, `<` and `>` are brackets too.
    """
    first, depth = code[opening], 0
    opens, closes = ("([{<", ")]}>") if first == "<" else ("([{", ")]}")
    for offset in range(opening, len(code)):
        if code[offset] in opens:
            depth += 1
        elif code[offset] in closes and code[offset - 1 : offset + 1] != "->":
            depth -= 1
            if depth == 0:
                return offset
    raise ValueError(f"nothing closes {code[opening : opening + 40]!r}")


def split(code: str, begin: int, end: int) -> list[tuple[int, int]]:
    """The ranges between the commas of code[begin:end], of those outside of any bracket."""
    parts, start, offset = [], begin, begin
    while offset < end:
        if code[offset] in "([{":
            offset = closing(code, offset)
        elif code[offset] == "<" and re.match(r"<[\w:, ]*>", code[offset:end]):
            offset = closing(code, offset)
        elif code[offset] == ",":
            parts.append((start, offset))
            start = offset + 1
        offset += 1
    parts.append((start, end))
    return [stripped(code, *part) for part in parts if code[slice(*part)].strip()]


def stripped(code: str, begin: int, end: int) -> tuple[int, int]:
    """The range without the white space around it."""
    text = code[begin:end]
    return begin + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())


def _without(text: str, begin: int, end: int) -> str:
    return text[:begin] + re.sub(r"[^\n]", " ", text[begin:end]) + text[end:]


def _blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match[0])
