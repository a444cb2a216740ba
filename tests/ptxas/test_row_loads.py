"""What the machine code of memory-bound kernels must have: no branch between the loads of a row.

Nor is there one between those of a loop that adds numbers up.

A load behind a branch starts once that is decided, and nvcc makes one of each `if` around an `asm
volatile`. So the columns behind the last are left out by predicates.
"""

from itertools import pairwise

import pytest

from tests.ptxas import machine_code
from tests.tools import families

MODULES = [
    m for m in families.each("machine_code.py") if hasattr(m, "ROW_LOADS") or hasattr(m, "SUMS")
]
ROW_LOADS = {
    pattern: count for m in MODULES for pattern, count in getattr(m, "ROW_LOADS", {}).items()
}
# Of a kernel that adds numbers up: how many of their loads are under way together, and in how many
# loops.
SUMS = {name: sums for m in MODULES for name, sums in getattr(m, "SUMS", {}).items()}
LEAVES = {"BRA", "BREAK", "BRX", "BSSY", "BSYNC", "CALL", "EXIT", "RET", "WARPSYNC"}


@pytest.fixture(scope="module")
def code(toolkit) -> dict[str, str]:
    """The SASS of each kernel of the families' SOURCES, by its symbol."""
    return machine_code.functions(
        toolkit, [source for module in MODULES for source in module.SOURCES]
    )


def rows_of(symbol: str) -> tuple[int, int]:
    """In how many places a kernel loads a row, and by how many loads a thread."""
    for pattern, count in ROW_LOADS.items():
        if found := pattern.search(symbol):
            return count(found)
    return 0, 0


def rows_loaded(sass: str, loads: int) -> list[bool]:
    """For each place where a row is loaded: whether its first loads stand without a branch."""
    names = [name for _, name, _ in machine_code.INSTRUCTION.findall(sass)]
    ends = [-1, *(at for at, name in enumerate(names) if name == "EXIT")]
    found = []
    for end, next_end in pairwise(ends):
        path = names[end + 1 : next_end]
        # What adds rows up has loaded one; other paths, such as those behind it, have not.
        if "SHFL" in (path if "SHFL" in names else ["SHFL"]) and "LDG" in path:
            at = [i for i, name in enumerate(path) if name == "LDG"][:loads]
            between = path[at[0] : at[-1]]
            found.append(len(at) == loads and not LEAVES.intersection(between))
    return found


def test_no_branch_stands_between_the_loads_of_a_row(code):
    forms = {symbol: rows_of(symbol) for symbol in code}
    assert ROW_LOADS
    for kernel in ROW_LOADS:
        assert any(map(kernel.search, forms)), kernel.pattern
    for symbol, (places, loads) in forms.items():
        if places > 0:
            assert rows_loaded(code[symbol], loads) == [True] * places, symbol


def straight_loads(sass: str) -> list[int]:
    """How many loads stand in each stretch of code that has no branch."""
    counts = [0]
    for _, name, _ in machine_code.INSTRUCTION.findall(sass):
        if name in LEAVES:
            counts.append(0)
        counts[-1] += name == "LDG"
    return counts


def test_no_branch_stands_between_the_loads_of_a_sum(code):
    assert SUMS
    for kernel, (loads, loops) in SUMS.items():
        found = [straight_loads(sass) for symbol, sass in code.items() if kernel in symbol]
        assert found, kernel
        for counts in found:
            assert sum(count >= loads for count in counts) >= loops, (kernel, counts)


def listing(*names: str) -> str:
    return "".join(f"        /*{16 * i:04x}*/               {s} ;\n" for i, s in enumerate(names))


LOAD, SUM, END = "@P0 LDG.E.128 R4, desc[UR4][R2.64]", "SHFL.BFLY PT, R1, R2, 0x1, 0x1f", "EXIT"


def test_the_check_sees_what_it_must():
    right = (LOAD, "CS2R R8, SRZ", LOAD, "@P1 BRA 0x80")
    assert rows_loaded(listing("@P0 EXIT", *right, END), 2) == [True]
    assert rows_loaded(listing(*right, SUM, LOAD, END, *right, SUM, END), 2) == [True, True]
    assert rows_loaded(listing(*right, SUM, END, LOAD, END), 2) == [True]
    assert rows_loaded(listing(LOAD, "@P1 BRA 0x80", LOAD, SUM, END), 2) == [False]
    assert rows_loaded(listing(LOAD, "BSSY B0, 0x80", LOAD, END), 2) == [False]
    assert rows_loaded(listing(LOAD, SUM, END), 2) == [False]


def test_the_count_of_loads_sees_what_it_must():
    assert straight_loads(listing(LOAD, "IADD3 R1, R1, R2, RZ", LOAD, "@P1 BRA 0x80", LOAD)) == [
        2,
        1,
    ]
    assert straight_loads(listing(LOAD, "BSSY B0, 0x80", LOAD, END)) == [1, 1, 0]
