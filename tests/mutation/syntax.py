"""Finds C++ functions, and the calls in them: as much of the syntax as the operators need.

It works on code without comments, text and preprocessor lines (`Source.code`), formatted by
clang-format.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.mutation.source import closing, split

CALL = re.compile(
    r"(?P<before>(?:\b\w+(?:\.|->)|(?:\b\w+(?:<[^;(){}]*>)?::)+)*)"
    r"(?P<name>\b[A-Za-z_]\w*)(?P<template><[^;(){}]*>)?\("
)
OBJECT = re.compile(r"(\w+)(?:\[[^\[\]]*\])?(?:\.|->)\Z")
KEYWORDS = frozenset(
    "if for while switch return sizeof alignof alignas decltype noexcept requires catch "
    "static_cast reinterpret_cast const_cast operator defined constexpr".split()
)
SCOPE = re.compile(r"\b(?:struct|class|union)\b(?:\s+alignas\([^)]*\))?\s+(\w+)")


@dataclass(frozen=True)
class Function:
    """A function with a body, or a class around some.

    Attributes:
        name: With its classes: `ring::wait_full`; of a class, the class.
        begin, end: The range from its head to its closing bracket.
        body: Where its body begins.
        parameters: Their declarations, in order; None of a class.
    """

    name: str
    begin: int
    end: int
    body: int
    parameters: tuple[str, ...] | None = field(default=None)

    @property
    def short(self) -> str:
        """Its name alone."""
        return self.name.rsplit("::", 1)[-1]

    @property
    def scope(self) -> str:
        """The class that it belongs to, or ""."""
        return self.name.rsplit("::", 2)[-2] if "::" in self.name else ""


@dataclass(frozen=True)
class Call:
    """A call in an expression or a statement.

    Attributes:
        callee: The name of what is called, without what it belongs to.
        qualifier: The scope before `::`, or "".
        object: What it is a member of, the name before `.` or `->`, or "".
        is_member: Whether there is such a thing.
        begin, end: The range of the whole call.
        template: The range of its template's arguments, or None.
        arguments: The ranges of its arguments.
    """

    callee: str
    qualifier: str
    object: str
    is_member: bool
    begin: int
    end: int
    template: tuple[int, int] | None
    arguments: tuple[tuple[int, int], ...]


def functions(code: str) -> list[Function]:
    """All functions and classes, those further in after those around them."""
    found: list[Function] = []
    classes: list[tuple[str, int]] = []  # open ones, each with its end
    head = offset = 0
    while offset < len(code):
        sign = code[offset]
        if sign in ";}":
            head = offset + 1
        elif sign == "(":
            offset = closing(code, offset)
        elif sign == "{":
            classes = [one for one in classes if one[1] > offset]
            text, end = _without_template(code[head:offset]), closing(code, offset)
            begin = head + len(code[head:offset]) - len(code[head:offset].lstrip())
            names = [name for name, _ in classes]
            scope = SCOPE.search(text)
            if scope and "(" not in text[scope.end() :] and "=" not in text:
                classes.append((scope[1], end))
                found.append(Function("::".join([*names, scope[1]]), begin, end, offset))
            elif name := _declared(text):
                parameters = _parameters(text, name)
                found.append(Function("::".join([*names, name]), begin, end, offset, parameters))
                offset = end
            elif "namespace" not in text:
                offset = end  # of a value
            head = offset + 1
        offset += 1
    return found


def enclosing(among: list[Function], offset: int) -> str:
    """The name of the innermost function or class around a place, or ""."""
    around = [one for one in among if one.begin <= offset <= one.end]
    return around[-1].name if around else ""


def calls(code: str, begin: int = 0, end: int | None = None) -> Iterator[Call]:
    """The calls of a range of code, also those in another call's arguments."""
    for match in CALL.finditer(code, begin, len(code) if end is None else end):
        name, before = match["name"], match["before"]
        if name in KEYWORDS:
            continue
        opening = match.end() - 1
        closes = closing(code, opening)
        owner = OBJECT.search(code, max(0, match.start("name") - 80), match.start("name"))
        scopes = re.findall(r"(\w+)(?:<[^;(){}]*>)?::", before)
        yield Call(
            name,
            scopes[-1] if scopes and before.endswith("::") else "",
            owner[1] if owner else "",
            code.endswith((".", "->"), 0, match.start("name")),
            expression(code, match.start()) if not scopes else match.start(),
            closes + 1,
            match.span("template") if match["template"] else None,
            tuple(split(code, opening + 1, closes)),
        )


def expression(code: str, begin: int) -> int:
    """Where the expression begins that goes on at `begin` with a member or a subscript."""
    while begin > 0:
        last = code[begin - 1]
        if last in "])":
            begin = _opening(code, begin - 1)
        elif last.isalnum() or last in "_.":
            begin -= 1
        elif code.endswith("->", 0, begin):
            begin -= 2
        else:
            break
    return begin


def innermost(code: str, offset: int) -> int:
    """Where the innermost bracket around a place opens, within its statement, or −1."""
    depth = 0
    for at in range(offset - 1, -1, -1):
        if code[at] in ";}":
            return -1
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if depth > 0:
            return at
    return -1


def _opening(code: str, closes: int) -> int:
    """Where the bracket opens that closes at `closes`."""
    depth = 0
    for offset in range(closes, -1, -1):
        depth += (code[offset] in ")]}") - (code[offset] in "([{")
        if depth == 0:
            return offset
    raise ValueError(f"nothing opens {code[max(0, closes - 40) : closes + 1]!r}")


def _without_template(head: str) -> str:
    """A declaration without `template <…>` and `requires (…)`, at the same offsets."""
    for match in re.finditer(r"\btemplate <|\brequires\s*\(", head):
        last = closing(head, match.end() - 1)
        blank = re.sub(r"[^\n]", " ", head[match.start() : last + 1])
        head = head[: match.start()] + blank + head[last + 1 :]
    return head


def _declared(head: str) -> str:
    """The name of the function whose head this is, or nothing."""
    if head.count("(") != head.count(")"):
        return ""
    match = re.search(r"(operator\s*(?:\(\)|[^\s\w(]+)|\b[A-Za-z_]\w*)\s*\(", head)
    while match and match[1] in KEYWORDS - {"operator"}:
        if match[1] not in ("requires", "alignas", "decltype", "noexcept"):
            return ""
        match = re.compile(match.re).search(head, closing(head, match.end() - 1))
    if match is None or "=" in head[: match.start()] or head.lstrip().startswith("else"):
        return ""
    before = head[: match.start()].split()
    if before and before[-1] in ("return", "new", "throw"):
        return ""
    return re.sub(r"\s", "", match[1])


def _parameters(head: str, name: str) -> tuple[str, ...]:
    start = re.search(rf"{re.escape(name)}\s*\(", head)
    if start is None:
        return ()
    opening = start.end() - 1
    ranges = split(head, opening + 1, closing(head, opening))
    return tuple(" ".join(head[slice(*one)].split("=")[0].split()) for one in ranges)
