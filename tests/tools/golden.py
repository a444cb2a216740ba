"""What hardware answered to the programs of tests/conformance: kept as text, compared with others.

A golden file is the hardware's answers to the programs of one topic. A record that must be matched
bit for bit is kept as checksums of its parts and its first values, any other one with all of its
values. In the file, a record is a line `name type count rule`, then lines of two spaces and values;
`| …` are the checksums.
"""

import math
import struct
import zlib
from dataclasses import dataclass

TYPES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "f32": "f", "f16": "e"}
TYPES["bf16"] = "H"  # the upper half of a float
FLOATS = ("f32", "f16", "bf16")
NANS = {"f32": ("I", 0x7FFFFFFF, 0x7F800000), "f16": ("H", 0x7FFF, 0x7C00)}
NANS["bf16"] = ("H", 0x7FFF, 0x7F80)  # the word, its magnitude, the magnitude of infinity
EXACT = ("bits", "value")
FIRST = 8  # values kept of a record with checksums
LISTED = 32  # records up to so long are kept whole
PARTS = 8
PER_LINE = 8
NAMED_DIFFERENCES = 3


@dataclass(frozen=True)
class Record:
    """What a program wrote of one launch.

    Attributes:
        name: Unique, from large to small: `wgmma.bf16.k_mn.n64.swizzle_0_128`.
        type: A key of TYPES.
        rule: How near another answer must be: "bits", "value" (NaNs are equal), "ulp N" or
            "near RELATIVE ABSOLUTE".
        data: The values, little-endian.
    """

    name: str
    type: str
    rule: str
    data: bytes

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self.data) // struct.calcsize(f"={TYPES[self.type]}")

    def values(self) -> list[float]:
        """The values, as Python's numbers."""
        if self.type == "bf16":
            words = struct.unpack(f"<{len(self.data) // 2}H", self.data)
            wide = struct.pack(f"<{len(words)}I", *(word << 16 for word in words))
            return list(struct.unpack(f"<{len(words)}f", wide))
        return list(struct.unpack(f"<{self.count}{TYPES[self.type]}", self.data))

    def canonical(self) -> bytes:
        """The data, with one NaN in place of every other where the rule lets NaNs be equal."""
        if self.rule == "bits" or self.type not in FLOATS:
            return self.data
        code, magnitude, infinity = NANS[self.type]
        words = struct.unpack(f"<{self.count}{code}", self.data)
        return struct.pack(
            f"<{len(words)}{code}", *(magnitude if w & magnitude > infinity else w for w in words)
        )


@dataclass(frozen=True)
class Golden:
    """What is kept of a record of the hardware; `values` are all or the first, as text."""

    name: str
    type: str
    count: int
    rule: str
    values: tuple[str, ...]
    sums: tuple[str, ...]

    def text(self) -> str:
        """Returns its lines of the golden file."""
        lines = [f"{self.name} {self.type} {self.count} {self.rule}"]
        for start in range(0, len(self.values), PER_LINE):
            lines.append("  " + " ".join(self.values[start : start + PER_LINE]))
        if self.sums:
            lines.append("  | " + " ".join(self.sums))
        return "\n".join(lines) + "\n"


def parse_records(dump: bytes) -> dict[str, Record]:
    """Returns the records that a program wrote, by name.

    Raises:
        ValueError: The dump is cut off, or two records have one name.
    """
    records: dict[str, Record] = {}
    at = 0
    while at < len(dump):
        end = dump.index(b"\n", at)
        name, kind, count, rule = dump[at:end].decode().split(" ", 3)
        size = int(count) * struct.calcsize(f"={TYPES[kind]}")
        data = dump[end + 1 : end + 1 + size]
        if len(data) != size:
            raise ValueError(f"record {name} is cut off")
        if name in records:
            raise ValueError(f"two records are named {name}")
        records[name] = Record(name, kind, rule, data)
        at = end + 1 + size
    return records


def dump(records: dict[str, Record]) -> bytes:
    """Returns records as a program writes them."""
    return b"".join(
        f"{one.name} {one.type} {one.count} {one.rule}\n".encode() + one.data
        for one in records.values()
    )


def keep(record: Record) -> Golden:
    """Returns what is kept of a record."""
    exact = record.rule in EXACT
    whole = not exact or record.count <= LISTED
    values = record.values() if whole else record.values()[:FIRST]
    return Golden(
        record.name,
        record.type,
        record.count,
        record.rule,
        tuple(_text(value) for value in values),
        tuple(checksums(record)) if exact else (),
    )


def parts(record: Record) -> list[tuple[int, int]]:
    """Returns the ranges of values that have checksums of their own."""
    step = max(1, math.ceil(record.count / PARTS))
    return [(i, min(i + step, record.count)) for i in range(0, record.count, step)]


def checksums(record: Record) -> list[str]:
    """Returns the checksum of each part."""
    data, size = record.canonical(), struct.calcsize(f"={TYPES[record.type]}")
    return [f"{zlib.crc32(data[a * size : b * size]):08x}" for a, b in parts(record)]


def write(header: str, kept: list[Golden]) -> str:
    """Returns a golden file.

    Args:
        header: What is said before the records; its lines begin with `#`.
        kept: The records, in the order of the file.
    """
    return header + "".join(one.text() for one in kept)


def parse(text: str) -> dict[str, Golden]:
    """Returns the records of a golden file, by name."""
    kept: dict[str, Golden] = {}
    head: list[str] = []
    values: list[str] = []
    sums: list[str] = []

    def close() -> None:
        if head:
            name, kind, count, rule = head
            kept[name] = Golden(name, kind, int(count), rule, tuple(values), tuple(sums))

    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith("  | "):
            sums = line[4:].split()
        elif line.startswith("  "):
            values += line.split()
        else:
            close()
            head, values, sums = line.split(" ", 3), [], []
    close()
    return kept


def compare(got: Record, want: Golden) -> str:
    """Returns how an answer differs from what is kept, or "" where it does not."""
    mine, kept = ((one.type, one.count, one.rule) for one in (got, want))
    if mine != kept:
        return (
            f"{got.name}: the program records {_describe(mine)}, the golden file has "
            f"{_describe(kept)}: regenerate it"
        )
    answers = got.values()
    if not want.sums:
        return _name_differences(got, answers, _numbers(want), "")
    ranges = zip(parts(got), checksums(got), want.sums, strict=True)
    wrong = [part for part, sum_now, sum_kept in ranges if sum_now != sum_kept]
    if not wrong:
        return ""
    where = ", ".join(f"{a}–{b - 1}" for a, b in wrong)
    told = _name_differences(got, answers[: len(want.values)], _numbers(want), "")
    first = wrong[0][0]
    here = " ".join(_text(value) for value in answers[first : first + FIRST])
    return told or f"{got.name}: of {got.count} values, {where} differ; {first} … are {here}"


def compare_records(got: Record, want: Record) -> str:
    """Returns how one answer differs from another that is there as a whole, or ""."""
    if (got.type, got.count, got.rule) != (want.type, want.count, want.rule):
        return f"{got.name}: not the same type, count and rule"
    if got.canonical() == want.canonical():
        return ""
    bits = "bits of NaNs" if got.rule == "bits" else ""
    return _name_differences(got, got.values(), want.values(), bits)


def distance(rule: str, got: float, want: float) -> float:
    """Returns how far two numbers are apart, as a multiple of what the rule allows."""
    if math.isnan(got) or math.isnan(want):
        return 0.0 if math.isnan(got) and math.isnan(want) else math.inf
    if got == want and (got != 0 or math.copysign(1, got) == math.copysign(1, want)):
        return 0.0
    name, *numbers = rule.split()
    if name in EXACT or math.isinf(got) or math.isinf(want):
        return math.inf
    if name == "ulp" and got == want:
        return math.inf  # zeros of two signs
    if name == "ulp":
        return abs(_place(got) - _place(want)) / float(numbers[0])
    relative, absolute = map(float, numbers)
    bound = relative * abs(want) + absolute
    return abs(got - want) / bound if bound > 0 else math.inf


def _place(value: float) -> int:
    """Returns the number of floats from zero to a float; −0 is one below 0."""
    bits = struct.unpack("<i", struct.pack("<f", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF) - 1


def _name_differences(got: Record, now: list[float], kept: list[float], otherwise: str) -> str:
    pairs = enumerate(zip(now, kept, strict=True))
    far = [(distance(got.rule, a, b), i, a, b) for i, (a, b) in pairs]
    wrong = [one for one in far if one[0] > 1]
    if not wrong:
        return f"{got.name}: {otherwise} differ" if otherwise else ""
    named = "; ".join(
        f"[{i}] is {_text(a)}, the hardware's {_text(b)}"
        + ("" if d == math.inf else f" ({d:.3g}×)")
        for d, i, a, b in sorted(wrong, key=lambda one: (-one[0], one[1]))[:NAMED_DIFFERENCES]
    )
    return f"{got.name} ({got.rule}): {len(wrong)} of {len(far)} values differ: {named}"


def _describe(what: tuple[str, int, str]) -> str:
    kind, count, rule = what
    return f"{count} {kind} by {rule}"


def _text(value: float) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _numbers(kept: Golden) -> list[float]:
    """Returns the values of a golden file; nine digits tell a float from every other."""
    if kept.type not in FLOATS:
        return [int(text) for text in kept.values]
    return [struct.unpack("<f", struct.pack("<f", float(text)))[0] for text in kept.values]
