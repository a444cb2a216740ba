"""What the machine code of memory-bound kernels must have: no branch between the loads of a row.

A load behind a branch starts once that is decided, and nvcc makes one of each `if` around an `asm
volatile`. So the columns behind the last are left out by predicates.
"""

import re
from itertools import pairwise

import pytest

from tests.ptxas import machine_code

SOURCES = ("csrc/kernels/norm/rms_norm", "csrc/kernels/activation/swiglu")
LEAVES = {"BRA", "BREAK", "BRX", "BSSY", "BSYNC", "CALL", "EXIT", "RET", "WARPSYNC"}
# As symbols name them: elements of an access, and of a lane.
ROWS = re.compile(r"\d\dnorm_forwardI\D*\d.*?Li(\d+)ELi(\d+)ELi\d+ELi\d+ELb[01]ELi\d+E.*EEEv")
NARROW_ROWS = re.compile(r"\d\dnorm_forward_narrowI.*Li(\d+)EEEEEv")
SLICES = re.compile(r"\d\dactivation_(for|back)wardI.*Lb1EEEEEv")  # of aligned rows


@pytest.fixture(scope="module")
def code(toolkit) -> dict[str, str]:
    """The SASS of each kernel of SOURCES, by its symbol."""
    return machine_code.functions(toolkit, SOURCES)


def rows_of(symbol: str) -> tuple[int, int]:
    """In how many places a kernel loads a row, and by how many loads a thread."""
    if found := ROWS.search(symbol):
        return 2, int(found[2]) // int(found[1])  # whole rows, and others
    if found := NARROW_ROWS.search(symbol):
        return 1, 8 if found[1] == "1" else 16 // int(found[1])
    if found := SLICES.search(symbol):
        return 1, 2 * (2 if found[1] == "for" else 3)  # of each input
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
    for kernel in (ROWS, NARROW_ROWS, SLICES):
        assert any(map(kernel.search, forms)), kernel.pattern
    for symbol, (places, loads) in forms.items():
        if places > 0:
            assert rows_loaded(code[symbol], loads) == [True] * places, symbol


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
