"""The machine code around the counters by which the blocks of a launch tell each other that they
have written: a fence on either side. The simulator's memory is in order, so it misses none.

What a block wrote comes before its fence, the fence before its count; and who sees the last count
fences before it reads. (`COUNTED` of a family's machine_code.py has the kernels.)
"""

import re

import pytest

from tests.ptxas import machine_code
from tests.tools import families

MODULES = [m for m in families.each("machine_code.py") if getattr(m, "COUNTED", ())]
MEMORY = re.compile(r"^(?:LD|ST|LDG|STG|ATOMG?|REDG?|LDGSTS|MEMBAR)$")
COUNT = re.compile(r"^\.E\.ADD\.")


@pytest.fixture(scope="module")
def code(toolkit) -> dict[str, str]:
    """The SASS of each kernel of the families' SOURCES, by its symbol."""
    return machine_code.functions(toolkit, [one for m in MODULES for one in m.SOURCES])


def mistakes(sass: str) -> list[str]:
    """What is wrong with a kernel's code."""
    accesses = [
        (name, rest)
        for _, name, rest in machine_code.INSTRUCTION.findall(sass)
        if MEMORY.match(name)
    ]
    counts = [
        i for i, (name, rest) in enumerate(accesses) if name[:4] == "ATOM" and COUNT.match(rest)
    ]
    found = []
    for i in counts:
        for beside, where in ((i - 1, "before"), (i + 1, "behind")):
            name = accesses[beside][0] if 0 <= beside < len(accesses) else "nothing"
            if name != "MEMBAR":
                found.append(f"{name}, no fence, {where} a count")
    return found if counts else ["it counts nothing"]


def test_counts_have_a_fence_on_either_side(code):
    assert MODULES
    for kernel in (kernel for module in MODULES for kernel in module.COUNTED):
        name = re.compile(rf"\d{kernel}[IE]")  # as it is mangled, a template or not
        forms = {symbol: sass for symbol, sass in code.items() if name.search(symbol)}
        assert forms, kernel
        assert not {symbol: found for symbol, sass in forms.items() if (found := mistakes(sass))}


STORE = "        /*0010*/                   STG.E.64 desc[UR4][R2.64], R4 ;\n"
FENCE = "        /*0020*/                   MEMBAR.SC.GPU ;\n"
ADD = "        /*0030*/                   ATOMG.E.ADD.STRONG.GPU PT, R6, desc[UR4][R2.64], R7 ;\n"
LOAD = "        /*0040*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;\n"


def test_the_check_sees_what_it_must():
    assert not mistakes(STORE + FENCE + ADD + FENCE + LOAD)
    assert mistakes(STORE + ADD + FENCE + LOAD) == ["STG, no fence, before a count"]
    assert mistakes(STORE + FENCE + ADD + LOAD) == ["LDG, no fence, behind a count"]
    assert mistakes(STORE + FENCE + LOAD) == ["it counts nothing"]
