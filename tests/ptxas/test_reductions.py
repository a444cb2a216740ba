"""What is added up in memory, where nobody reads what was there, is a reduction in machine code.

nvcc makes a reduction (RED) of an `atomicAdd` whose result is not used; but in a kernel that also
has a fence of the device (MEMBAR) it makes an atomic (ATOM) that sends the old number back, without
a word. Attention's backward then took 1.1 to 1.4 times as long (benchmarks/attention.md). The
instruction `red` itself stays one.
"""

import re

from tests.ptxas import machine_code

# An atomic into RZ. Exchanges have no reduction.
UNREAD_ADD = re.compile(r"\bATOM[GS]?\.E\.ADD\S* (?:PT, )?RZ,")


def unread(code: dict[str, str]) -> dict[str, int]:
    """Of kernels, by symbol, how many additions they have that send back what nobody reads."""
    return {
        symbol: count for symbol, sass in code.items() if (count := len(UNREAD_ADD.findall(sass)))
    }


def test_additions_that_nobody_reads_are_reductions(toolkit):
    code = machine_code.functions_of(toolkit)
    assert any("REDG.E.ADD" in sass for kernels in code.values() for sass in kernels.values())
    assert not {source: found for source, kernels in code.items() if (found := unread(kernels))}


def test_the_check_sees_what_it_must():
    line = "        /*0030*/                   {} ;\n"
    atomic = line.format("ATOMG.E.ADD.64.STRONG.GPU PT, RZ, desc[UR4][R2.64+0x4000], R6")
    read = line.format("ATOMG.E.ADD.STRONG.GPU PT, R6, desc[UR4][R2.64], R7")
    reduction = line.format("REDG.E.ADD.64.STRONG.GPU desc[UR4][R2.64], R6")
    exchange = line.format("ATOMG.E.EXCH.STRONG.GPU PT, RZ, desc[UR4][R2.64], RZ")
    assert unread({"k": read + atomic + atomic}) == {"k": 2}
    assert unread({"k": read + reduction + exchange}) == {}
