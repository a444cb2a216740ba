"""The mistakes: each operator proposes changes of the places in a source that have a role.

The role of a call is what it does to the pipeline, whatever it is called (tests/mutation/roles.py):
a wait, an arrive, a fence, a commit, … are deleted or weakened; phases, stages, counts, bytes and
barriers become others. Layouts and masks are arithmetic: conditions, bounds, constants, subscripts
and coordinates become others. A number's role is its place in the syntax.
"""

import re
from collections.abc import Iterator

from tests.mutation import roles, syntax
from tests.mutation.mutant import Change, Code, Mutant, numbered
from tests.mutation.source import Source, closing, split, stripped

INTEGER = re.compile(r"(?<![\w.'])\d+(?![\w.'])")
COMPARISON = re.compile(r" (<=|>=|==|!=|<|>) ")
OPPOSITE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
CONDITION = re.compile(r"\bif \(")
FLIPPED = re.compile(r"\b(\w+) \^= 1(?=;)")
# What stands before the length of an array in its declaration.
ARRAY = r"\w+(?:\[[^\[\]]*\])*"
DECLARATOR = re.compile(
    r"\s*(?:\d+\) )?(?:(?!(?:return|else|case)\b)(?:\w+ )*[\w:]+(?:<[^;]*>)?[&*]? "
    rf"(?:{ARRAY}(?: = 0)?, )*|, ){ARRAY}"
)
# By how much an argument is changed, if it is a number.
STEPS = {"arrivals": 1, "bytes": 16, "barrier number": 1, "threads": 32, "edge": 1}
# What an integer is, by the code on either side of it; the first that fits.
PLACES = (
    ("limit", r" (?:<=?|>=?|==|!=) -?$", r""),
    ("limit", r"", r"^ (?:<=?|>=?|==|!=) "),
    ("branch", r" [?:] -?$", r""),
    ("index", r"\[-?$", r"^\]"),
    ("start", r"(?<![=!<>+*/%-]) = -?$", r"^[;,)]"),
    ("stride", r" [+-]= $", r"^[;,)]"),
    ("result", r"\breturn -?$", r"^;"),
    ("argument", r"(?:[({,] ?|\.\w+ = )-?$", r"^[,)}]"),
)


def mutants(source: Source) -> list[Mutant]:
    """All of a source's mutants, in the order of their places; equal texts once."""
    code = Code(source)
    return numbered(code, (change for operator in OPERATORS for change in operator(code)))


def _plus(text: str, step: int) -> str:
    """A sum as one would write it."""
    if text.isdigit():
        return str(int(text) + step)
    return f"({text}) {'+' if step > 0 else '-'} {abs(step)}"


def _name(found: frozenset[str]) -> str:
    """The role that a call is named after; `step` if it does several things."""
    if "init" in found:
        return "init"
    if {"arrive", "fence"} <= found and found <= {"arrive", "fence", "barrier"}:
        return "release"  # after ordinary loads
    return next(iter(found)) if len(found) == 1 else "step"


def deleted(code: Code) -> Iterator[Change]:
    """A call that is not made, a phase that is not flipped."""
    for call, found in code.statements():
        yield Change(_name(found), call.begin, call.end, "deleted", "")
    for match in FLIPPED.finditer(code.source.code):
        yield Change("phase", *match.span(), "deleted", "")


def unguarded(code: Code) -> Iterator[Change]:
    """A condition that always or never holds; those of the preprocessor's kind are left alone."""
    for match in CONDITION.finditer(code.source.code):
        place = match.end(), closing(code.source.code, match.end() - 1)
        yield Change("guard", *place, "always", "true")
        yield Change("guard", *place, "never", "false")


def weakened(code: Code) -> Iterator[Change]:
    """A wait that lets one more group be under way; a barrier of each warp alone."""
    for call, found in code.statements():
        if found == {"wait"} and call.template:
            begin, end = call.template[0] + 1, call.template[1] - 1
            text = code.source.text[begin:end]
            yield Change("wait", begin, end, "weaker", _plus(text, 1))
        if found == {"barrier"} and call.qualifier in ("arch", "warpgroup"):
            yield Change("barrier", call.begin, call.end, "weaker", "arch::sync_warp()")


def unfenced(code: Code) -> Iterator[Change]:
    """A stage that ordinary loads have read, given back as if by wgmma alone; an unfenced store."""
    for call, found in code.statements():
        text = code.source.text[call.begin : call.end]
        if _name(found) == "release" and call.is_member:
            arrival = re.sub(rf"{call.callee}(?:<[^;()]*>)?", "release_after_mma", text)
            after = f"{{ arch::sync_warp(); if (arch::lane_id() == 0) {arrival}; }}"
            yield Change("release", call.begin, call.end, "unfenced", after)
    for call, _, _ in code.calls:
        if code.roles.has_unfenced(call):
            end = code.source.code.index("(", call.begin)
            end = end if call.template is None else call.template[0]
            name = code.source.text[call.begin : end]
            yield Change("store", call.begin, end, "unfenced", f"{name}{roles.UNFENCED}")


def phases(code: Code) -> Iterator[Change]:
    """The other parity, waited for or begun with."""
    text = code.source.code
    for (begin, end), what in code.arguments():
        if what == "parity":
            yield Change("parity", begin, end, "flipped", f"{code.source.text[begin:end]} ^ 1")
    for name in {match[1] for match in FLIPPED.finditer(text)}:
        for match in re.finditer(rf"\b{name} = ([01])(?=;)", text):
            yield Change("phase", *match.span(1), "flipped", str(1 - int(match[1])))


def stages(code: Code) -> Iterator[Change]:
    """The stage after a cursor's."""
    text = code.source.code
    for match in re.finditer(r"(?<=\[)[\w.]+\.stage(?=\])", text):
        end = match.start() - 1
        array = text[syntax.expression(text, end) : end]
        length = f"(sizeof({array}) / sizeof({array}[0]))"
        yield Change("stage", *match.span(), "next", f"({match[0]} + 1) % {length}")


def counts(code: Code) -> Iterator[Change]:
    """Another number of arrivals, bytes or threads, another barrier, a mask's edge elsewhere."""
    for (begin, end), what in code.arguments():
        text = code.source.text[begin:end]
        for change, sign in (("more", 1), ("less", -1)) if what in STEPS else ():
            yield Change(what, begin, end, change, _plus(text, sign * STEPS[what]))


def numbers(code: Code) -> Iterator[Change]:
    """Every integer, one more, one less, and twice as much where it is a size.

    The number of groups that a wait leaves is not one of them: to leave fewer is right as well. Nor
    is an alignment; and of an array's length not more, for a longer array is as right.
    """
    text = code.source.code
    waits = [
        call.template
        for call, function, inside in code.calls
        if call.template and code.roles.of(call, function, inside) == {"wait"}
    ]
    alignments = [
        (match.end(), closing(text, match.end() - 1)) for match in re.finditer(r"\balignas\(", text)
    ]
    left_alone = [*waits, *alignments]
    for match in INTEGER.finditer(text):
        if any(begin <= match.start() < end for begin, end in left_alone):
            continue
        operator = _place(text, match.start(), match.end())
        value = int(match[0])
        others = [("less", value - 1)]
        if operator != "length":
            others += [("more", value + 1)] + [("double", 2 * value)] * (value >= 4)
        for change, other in others:
            yield Change(operator, *match.span(), change, str(other))


def _place(code: str, begin: int, end: int) -> str:
    """What an integer is."""
    opening = syntax.innermost(code, begin)
    if opening >= 0 and code[opening] == "[" and _is_length(code, opening):
        return "length"
    before, after = code[max(0, begin - 40) : begin], code[end : end + 40]
    for operator, left, right in PLACES:
        if re.search(left, before) and re.search(right, after):
            return operator
    return "term"


def _is_length(code: str, opening: int) -> bool:
    """Whether this bracket has the length of an array that is declared here."""
    start = max(code.rfind(sign, 0, opening) for sign in ";{}(") + 1
    return DECLARATOR.fullmatch(code[start:opening]) is not None


def comparisons(code: Code) -> Iterator[Change]:
    """A bound that is shifted by one, an equality that is negated."""
    for match in COMPARISON.finditer(code.source.code):
        is_bound = match[1] not in ("==", "!=")
        operator, change = ("bound", "shifted") if is_bound else ("equality", "negated")
        yield Change(operator, *match.span(1), change, OPPOSITE[match[1]])


def subscripts(code: Code) -> Iterator[Change]:
    """The element after the one that is meant; not of a declaration, where it is a length."""
    text = code.source.code
    for match in re.finditer(r"(?<=[\w\]])\[(?!\])", text):
        begin, end = match.end(), closing(text, match.start())
        index = code.source.text[begin:end]
        if not index.endswith(".stage") and not _is_length(text, match.start()):
            yield Change("subscript", begin, end, "next", _plus(index, 1))


def coordinates(code: Code) -> Iterator[Change]:
    """The tile after the one that is meant, in each direction."""
    text = code.source.code
    for (begin, end), what in code.arguments():
        if what != "coordinate" or text[begin] != "{":
            continue
        for place in split(text, begin + 1, end - 1):
            name = re.match(r"\.\w+ = ", text[slice(*place)])
            place = stripped(text, place[0] + (name.end() if name else 0), place[1])
            after = _plus(code.source.text[slice(*place)], 1)
            yield Change("coordinate", *place, "next", after)


OPERATORS = (
    deleted,
    unguarded,
    weakened,
    unfenced,
    phases,
    stages,
    counts,
    coordinates,
    numbers,
    comparisons,
    subscripts,
)
