"""Whether ordinary accesses of shared memory are ordered before the copies that overwrite it.

Bulk and tensor copies write shared memory in the asynchronous proxy, which no barrier holds back
behind the ordinary accesses of the threads that give a place free: each of them fences, they meet,
and then one arrives at the barrier that the producer waits for. (wgmma reads in that proxy itself.)
An arrive does not even wait for loads under way, so a copy may overtake them.

`findings` reads a kernel's machine code. It follows all paths through it, and keeps which accesses
no fence has followed yet, and which a fence has, but no meeting of threads:

    LDS, LDSM, LD, STS …      an access                    unfenced
    FENCE.VIEW.ASYNC          by every thread              unfenced → fenced
    WARPSYNC, BAR.SYNC …      the threads meet             fenced → in order
    SYNCS.ARRIVE, ARRIVES     must find neither
    UBLKCP, UTMALDG           the thread's own copy: must find none unfenced

A copy, and the arrive that says how many bytes it will bring, must find none in that part of shared
memory alone which it writes.
"""

import enum
import functools
import itertools
import re
import sys
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tests.ptxas.addresses import Addresses


class Kind(enum.Enum):
    """What instructions are to this check; each with a pattern of their names."""

    # Generic LD and ST may reach shared memory, their block's or another's.
    ACCESS = r"(LDS|LDSM|LD|STS|STSM|ST|ATOMS|ATOM|RED)\b"
    FENCE = r"FENCE\.VIEW\.ASYNC(\.S)?$"  # .G: global memory
    # Of a __syncwarp ptxas leaves a NOP where it sees that the warp is together, and else a branch
    # to what brings it together (BRA.DIV). Whoever only arrives (BAR.ARV) does not wait.
    MEETING = r"WARPSYNC|BRA\.DIV|BAR\.(?!ARV)|UCGABAR_WAIT|NOP$"
    ARRIVE = r"SYNCS\.ARRIVE\b(?!.*\.A0)|ARRIVES\b"  # A0: of no thread, of bytes alone
    COPY = r"UTMALDG\b|UBLK(CP|RED)\.(?!G\b)"  # UBLKCP.G.S reads shared memory
    CALL = r"CALL\b"
    RETURN = r"RET\b"
    END = r"EXIT\b"
    JUMP = r"(BRA|JMP)\b"
    # Threads that are not in the collective go on behind it, which its operand names.
    COLLECTIVE = r"WARPSYNC\.COLLECTIVE"
    UNKNOWN = r"(BRX|BRXU|JMX|JMXU)\b"  # to an address in a register
    OTHER = ""


EVENTS = {Kind.ACCESS, Kind.FENCE, Kind.MEETING, Kind.ARRIVE, Kind.COPY}
LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+) )?([A-Z][\w.]*)([^;]*);", re.M)


@functools.cache
def kinds(name: str) -> frozenset[Kind]:
    """What an instruction is, by its name; BRA.DIV is two things."""
    found = [kind for kind in Kind if kind is not Kind.OTHER and re.match(kind.value, name)]
    return frozenset(found or [Kind.OTHER])


@dataclass(frozen=True)
class Instruction:
    """One instruction: where it stands, its predicate or "", its name, its operands."""

    at: int
    predicate: str
    name: str
    operands: str

    def __str__(self) -> str:
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{self.at:04x} {guard}{self.name}{self.operands.rstrip()}"

    @property
    def target(self) -> int:
        """The address among its operands, which is the last."""
        return int(re.search(r"0x([0-9a-f]+)\W*$", self.operands)[1], 16)

    @property
    def always_jumps(self) -> bool:
        """Whether the next instruction cannot follow it; a predicate may be among its operands."""
        return not self.predicate and bool(
            kinds(self.name) & {Kind.END, Kind.RETURN}
            or (self.name in ("BRA", "JMP") and "P" not in self.operands)
        )

    @property
    def address(self) -> str:
        """Where it reads, writes, arrives or copies to, as `R2+UR4+0x4000`; or nothing."""
        found = re.search(r"\[([^\]]+)\]", self.operands)
        return re.sub(r"\.\w+", "", found[1]) if found else ""

    @property
    def least_offset(self) -> int:
        """The offset of its address from its registers, which point into shared memory."""
        found = re.search(r"\+0x([0-9a-f]+)$", self.address)
        return int(found[1], 16) if found else 0

    @property
    def expects_bytes(self) -> bool:
        """Whether it is an arrive that says how many bytes the copies behind it will bring."""
        return Kind.ARRIVE in kinds(self.name) and not self.operands.rstrip().endswith(", RZ")


@dataclass(frozen=True)
class State:
    """What is not in order yet on some path to a place: sets of accesses, as bits."""

    unfenced: int = 0
    fenced: int = 0  # by their threads, which have not met since

    def joined(self, other: "State") -> "State":
        return State(self.unfenced | other.unfenced, self.fenced | other.fenced)


class Flow:
    """The paths through a kernel's instructions, each known by its number.

    Args:
        sass: The kernel's machine code.
        parts: The offsets in shared memory at which the part of a copy ends and another's begins;
            from the last on no copy writes.
    """

    def __init__(self, sass: str, parts: Sequence[int] = ()):
        found = LINE.findall(sass)
        self.code = [Instruction(int(at, 16), *rest) for at, *rest in found]
        self.kinds = [kinds(each.name) for each in self.code]
        self.numbers = {each.at: i for i, each in enumerate(self.code)}
        self.parts = parts or (sys.maxsize,)
        self.accesses = [
            i
            for i in self.all_of(Kind.ACCESS)
            if self.code[i].predicate != "!PT" and self.code[i].least_offset < self.parts[-1]
        ]
        self.bits = {i: 1 << n for n, i in enumerate(self.accesses)}
        self.parts_of = functools.cache(self._parts_of)

    def _parts_of(self, i: int) -> frozenset[int]:
        """The numbers of the parts that an instruction's address may lie in."""
        constants = self.addresses.constants(i, self.code[i].address)
        if constants is None:
            first = bisect(self.parts, self.code[i].least_offset)
            return frozenset(range(first, len(self.parts) + 1))
        return frozenset(bisect(self.parts, constant) for constant in constants)

    @cached_property
    def addresses(self) -> Addresses:
        """The addresses of its instructions."""
        before: list[list[int]] = [[] for _ in self.code]
        for i in range(len(self.code)):
            for to in self.jumps.get(i, [i + 1]):
                if to < len(self.code):
                    before[to].append(i)
        return Addresses(self.code, before.__getitem__)

    def overwritten(self, accesses: int, i: int) -> int:
        """Those of some accesses, as bits, that a copy, or one behind an arrive, may overwrite."""
        copies = [i]
        if self.code[i].expects_bytes:
            behind = itertools.takewhile(
                lambda at: Kind.ARRIVE not in self.kinds[at], range(i + 1, len(self.code))
            )
            copies = [at for at in behind if Kind.COPY in self.kinds[at]]
        elif Kind.COPY not in self.kinds[i]:
            copies = []
        copied = frozenset(range(len(self.parts)))
        parts = copied & frozenset().union(*map(self.parts_of, copies)) or copied
        return sum(
            bit
            for at, bit in self.bits.items()
            if bit & accesses and not self.parts_of(at).isdisjoint(parts)
        )

    def all_of(self, kind: Kind) -> list[int]:
        """The instructions of a kind."""
        return [i for i, some in enumerate(self.kinds) if kind in some]

    @cached_property
    def jumps(self) -> dict[int, list[int]]:
        """The instructions that not just the next one follows: what does. Calls are followed into.

        Raises:
            ValueError: One leads to where a register says.
        """
        for i in self.all_of(Kind.UNKNOWN):
            raise ValueError(f"{self.code[i]}: where it leads to is not known")
        found = {}
        for i, each in enumerate(self.code):
            leads = self.kinds[i] & {Kind.JUMP, Kind.CALL, Kind.COLLECTIVE}
            if leads or each.always_jumps:
                calls = Kind.CALL in leads and not each.predicate
                goes_on = [] if each.always_jumps or calls else [i + 1]
                found[i] = goes_on + ([self.numbers[each.target]] if leads else [])
        for i in self.all_of(Kind.CALL):
            inside = self._function(self.numbers[self.code[i].target], found)
            if not any(self.kinds[at] & EVENTS for at in inside):
                found[i] = [
                    i + 1
                ]  # as if it were not there: it returns to here and to nowhere else
                continue
            for at in inside.intersection(self.all_of(Kind.RETURN)):
                found[at] = [*found.get(at, [at + 1]), i + 1]
        return found

    @staticmethod
    def _function(start: int, jumps: dict[int, list[int]]) -> set[int]:
        """What is reached from a function's start on, up to where it returns."""
        found, rest = set(), [start]
        while rest:
            at = rest.pop()
            if at not in found:
                found.add(at)
                rest += jumps.get(at, [at + 1])
        return found

    def repeats(self, i: int) -> bool:
        """Whether a path leads from an instruction back to it: whether it is in a loop."""
        return any(i in self._function(to, self.jumps) for to in self.jumps.get(i, [i + 1]))

    @cached_property
    def blocks(self) -> dict[int, tuple[list[int], list[int]]]:
        """By their first instruction: what counts in a block, and the blocks that may follow."""
        starts = {0, *(to for some in self.jumps.values() for to in some)}
        starts |= {i + 1 for i in self.jumps}
        ordered = [*sorted(start for start in starts if start < len(self.code)), len(self.code)]
        found = {}
        for start, end in itertools.pairwise(ordered):
            inside = [i for i in range(start, end) if self.kinds[i] & EVENTS]
            follow = self.jumps.get(end - 1, [end])
            found[start] = inside, [to for to in follow if to < len(self.code)]
        return found

    def after(self, i: int, state: State) -> State:
        """The state behind an instruction, given the one before."""
        if i in self.bits:
            return State(state.unfenced | self.bits[i], state.fenced)
        if self.code[i].predicate:  # some threads alone
            return state
        if Kind.FENCE in self.kinds[i]:
            return State(0, state.fenced | state.unfenced)
        return State(state.unfenced, 0) if Kind.MEETING in self.kinds[i] else state

    @cached_property
    def states(self) -> dict[int, State]:
        """The state at the start of each block that can be reached, over all paths to there."""
        found, rest = {0: State()}, [0]
        while rest:
            start = rest.pop()
            inside, follow = self.blocks[start]
            state = functools.reduce(lambda state, i: self.after(i, state), inside, found[start])
            for to in follow:
                joined = state.joined(found.get(to, state))
                if joined != found.get(to):
                    found[to] = joined
                    rest.append(to)
        return found

    def named(self, bits: int) -> str:
        """Some accesses, for a report."""
        some = [i for i in self.accesses if self.bits[i] & bits]
        more = f" (and {len(some) - 1} more)" if len(some) > 1 else ""
        return f"{self.code[some[0]]}{more}"


def copies(sass: str) -> bool:
    """Whether a kernel has copies that write shared memory in the asynchronous proxy."""
    names = ("UTMALDG", "UBLKCP", "UBLKRED")  # to search for a pattern takes longer
    return any(name in sass for name in names) and bool(
        re.search(rf"\s(?:{Kind.COPY.value})", sass)
    )


def findings(sass: str, parts: Sequence[int] = ()) -> list[str]:
    """What is not in order before an arrive or a copy, a line for each of these.

    Args:
        sass: A kernel's machine code.
        parts: The offsets in shared memory at which the part of a copy ends and another's begins;
            from the last on no copy writes. Empty if they are not known.
    """
    flow, found = Flow(sass, parts), []
    for start, state in sorted(flow.states.items()):
        for i in flow.blocks[start][0]:
            arrives = Kind.ARRIVE in flow.kinds[i]
            if (state.unfenced or state.fenced) and (arrives or Kind.COPY in flow.kinds[i]):
                unfenced = flow.overwritten(state.unfenced, i)
                fenced = flow.overwritten(state.fenced, i)
                if unfenced:
                    found.append(f"{flow.code[i]}: no fence since {flow.named(unfenced)}")
                elif fenced and arrives:
                    before = flow.named(fenced)
                    line = f"{flow.code[i]}: a fence, but no meeting of threads since {before}"
                    found.append(line)
            state = flow.after(i, state)
    return found
