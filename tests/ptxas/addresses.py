"""Where in shared memory an instruction's address may lie, by the machine code in front of it.

An address is the start of the block's shared memory, and a constant, and what is computed: indices
times sizes, of which this knows nothing but that they are not negative. The constant is that of a
member of the kernel's struct of shared memory, for an index stays within its array (the simulator
checks each). Registers are followed back to what they were computed from, over all paths:

    ULEA UR8, UR9, UR8, 0x18        the start: UR9 is the number of the block in its cluster
    VIADD R2, R2, 0xe000            a constant more
    IMAD R0, R19, 0x610, R2         as R2, if R19 is no address
    @P0 ELECT P2, URZ, PT           one of the threads that P0 has not left yet, so that …
    @P2 R2UR UR8, R57               … this is always executed, by one: UR8 is R57
    SEL, LDS, LDC …                 no address; unknown, where one was expected
    -R5                             unknown: what it is taken from may lie before
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

REGISTER = re.compile(r"-?(UR\d+|URZ|R\d+|RZ)(?:\.\w+)*$")
SUMS = ("IADD3", "UIADD3", "VIADD", "IMAD.IADD", "MOV", "UMOV", "R2UR", "IMAD.MOV", "IMAD.U32")
NO_RESULT = re.compile(r"(BAR|WARPSYNC|BRA|ST|RED|UTMA|UBLK|SYNCS|CCTL|EXIT|RET|NOP|BSSY|BSYNC)\b")
ZEROS = ("RZ", "URZ")
OF_CLUSTER = 24  # log₂ of the bytes between the shared memories of a cluster's blocks


@dataclass(frozen=True)
class Value:
    """What a register holds: a constant, from the start of shared memory if it is an address."""

    constant: int = 0
    is_address: bool = False
    is_known: bool = True

    def __add__(self, other: "Value") -> "Value":
        return Value(
            self.constant + other.constant,
            self.is_address or other.is_address,
            self.is_known and other.is_known,
        )


COMPUTED = Value()  # no address, and not negative
UNKNOWN = Value(is_known=False)


def number(text: str) -> int | None:
    """An immediate operand; of the low 32 bits, those that are negative are."""
    if not re.fullmatch(r"-?(0x)?[0-9a-f]+", text):
        return None
    found = int(text, 0)
    return found - (1 << 32) if found >= 1 << 31 else found


def results(name: str, operands: list[str]) -> frozenset[str]:
    """The registers that an instruction writes."""
    if NO_RESULT.match(name):
        return frozenset()
    first = next((each for each in operands if not re.match(r"!?U?P[\dT]", each)), "")
    found = re.fullmatch(r"(U?R)(\d+)(?:\.\w+)*", first)
    if not found:
        return frozenset()
    letters, start = found[1], int(found[2])
    product = re.match(r"[A-Z]GMMA\.\d+x(\d+)", name)  # of a warpgroup, in 32 bits
    if product:
        return frozenset(f"{letters}{start + i}" for i in range(int(product[1]) // 2))
    words = 4 if re.search(r"\.128\b|^LDSM", name) else 2 if re.search(r"64|WIDE|CS2R", name) else 1
    if re.match(r"U?SHF\b", name):  # of .U64 a half
        words = 1
    return frozenset(f"{letters}{start + i}" for i in range(words))


class Addresses:
    """The addresses of a kernel's instructions.

    Args:
        code: The instructions: each with a `name`, `operands` and a `predicate`.
        before: The numbers of the instructions that may be executed right before one.
    """

    def __init__(self, code: list, before: Callable[[int], list[int]]):
        self.code = code
        self.before = before
        self.known: dict[tuple[str, int], frozenset[Value]] = {}
        self.asked: list[tuple[str, int]] = []  # what is being found out, the outermost first
        self.met = 0  # the outermost of these that has been met again; of none, how many they are

    @cached_property
    def written(self) -> list[frozenset[str]]:
        """The registers that each instruction writes."""
        return [results(each.name, self.operands(i)) for i, each in enumerate(self.code)]

    def operands(self, i: int) -> list[str]:
        """An instruction's operands, each by itself."""
        return [each.strip() for each in self.code[i].operands.split(",")]

    def constants(self, i: int, address: str) -> frozenset[int] | None:
        """The constants of an address, over all paths; nothing if it may be unknown.

        Args:
            i: The instruction's number.
            address: Registers and an offset, as `R2+UR4+0x4000`.
        """
        found = frozenset({COMPUTED})
        for term in address.split("+"):
            found = frozenset(a + b for a in found for b in self._operand(term, i))
        return (
            frozenset(each.constant for each in found)
            if found and all(each.is_address and each.is_known for each in found)
            else None
        )

    def _operand(self, text: str, i: int) -> frozenset[Value]:
        value = number(text)
        if value is not None:
            return frozenset({Value(value)})
        register = REGISTER.match(text)
        if text.startswith("-"):
            return frozenset({Value() if register and register[1] in ZEROS else UNKNOWN})
        return self._register(register[1], i) if register else frozenset({COMPUTED})

    def _register(self, register: str, i: int) -> frozenset[Value]:
        """What a register may hold before an instruction. Round a loop, nothing new."""
        if register in ZEROS:
            return frozenset({Value(0)})
        key = register, i
        if key in self.known:
            return self.known[key]
        if key in self.asked:
            self.met = min(self.met, self.asked.index(key))
            return frozenset()
        depth, outer = len(self.asked), self.met
        self.asked.append(key)
        self.met = depth + 1
        found = frozenset(self._reaching(register, i))
        self.asked.pop()
        if self.met >= depth:  # or it is not all: of the rest another one knows
            self.known[key] = found
        self.met = min(outer, self.met)
        return found

    def _reaching(self, register: str, i: int) -> set[Value]:
        """What the instructions write from which it comes."""
        found: set[Value] = set()
        # What is executed under the same predicate as the instruction has always been executed.
        condition = self.code[i].predicate
        seen, rest = set(), [(at, condition) for at in self.before(i)]
        if not rest:
            found.add(COMPUTED)
        while rest:
            at, condition = place = rest.pop()
            if place in seen:
                continue
            seen.add(place)
            writes = register in self.written[at]
            if writes:
                found |= self._result(at)
            always = self.code[at].predicate in ("", condition) or self._is_elected(at)
            if not (writes and always):
                if condition.lstrip("!") in self.operands(at)[:3]:  # it may be another from here on
                    condition = ""
                rest += [(each, condition) for each in self.before(at)]
                if not self.before(at):
                    found.add(COMPUTED)
        return found

    def _is_elected(self, i: int) -> bool:
        """Whether a copy to a uniform register is that of a thread elected right before."""
        predicate = self.code[i].predicate
        if not predicate.startswith("P") or not self.code[i].name.startswith("R2UR"):
            return False
        while len(before := self.before(i)) == 1:  # nothing leads to behind the election
            (i,) = before
            if predicate in self.operands(i)[:2]:
                return self.code[i].name == "ELECT" and self.operands(i)[0] == predicate
        return False

    def _result(self, i: int) -> frozenset[Value]:
        name, operands = self.code[i].name, self.operands(i)
        sources = [each for each in operands[1:] if not re.match(r"!?U?P[\dT]", each)]
        if name.startswith(SUMS):
            terms = sources
            if name.startswith("IMAD.IADD"):
                terms = [sources[0], sources[2]]
        elif name.startswith(("LEA", "ULEA")) and len(sources) == 3:
            if number(sources[2]) == OF_CLUSTER:
                return frozenset({Value(0, is_address=True)})
            terms = [sources[1]]
        elif name in ("IMAD", "UIMAD") and len(sources) == 3:
            terms = [sources[2]]
        else:
            return frozenset({COMPUTED})
        found = frozenset({COMPUTED})
        for term in terms:
            found = frozenset(a + b for a in found for b in self._operand(term, i))
        return found
