"""No asynchronous copy has a uniform register in its address.

Of cp.async with a policy of the L2, to a uniform address plus a lane's offset, ptxas 12.8 and 13.0
make `LDGSTS [R + UR]`, which has no place for both: an H200 stops there, at an illegal instruction.
`arch::cp_async_evict_first` hides the sum from ptxas, but where its caller says that there is none.
"""

import re

from tests.ptxas import machine_code

UNIFORM = re.compile(r"\bLDGSTS\S* \[[^]]*\bUR\d+")


def uniform(code: dict[str, str]) -> dict[str, int]:
    """Of kernels, by symbol, how many copies have a uniform register in their address."""
    return {symbol: count for symbol, sass in code.items() if (count := len(UNIFORM.findall(sass)))}


def test_no_copy_has_a_uniform_address(toolkit):
    code = machine_code.functions_of(toolkit)
    assert any("LDGSTS.E" in sass for kernels in code.values() for sass in kernels.values())
    assert not {source: found for source, kernels in code.items() if (found := uniform(kernels))}


def test_the_check_sees_what_it_must():
    line = "        /*02c0*/                   LDGSTS.E.BYPASS.128 {} ;\n"
    illegal = line.format("[R9+UR0], desc[UR1][R2.64], P1")
    known = line.format("[R5+0x400], desc[UR6][R12.64], !P1")
    assert uniform({"k": known + illegal + illegal, "l": known}) == {"k": 2}
