"""The machine code of programmatically launched kernels: nothing of memory before the wait.

nvcc may not move an access across `griddepcontrol.wait`, nor let it go by the cache that is not
coherent, which may hold what it held before the kernels in front had ended.
"""

import re

import pytest

from tests.ptxas import machine_code
from tests.tools import families

MODULES = [module for module in families.each("machine_code.py") if module.DEPENDENT]
GLOBAL = {"LD", "ST", "LDG", "STG", "ATOM", "ATOMG", "RED", "REDG", "LDGSTS", "UBLKCP", "UTMALDG"}


@pytest.fixture(scope="module")
def code(toolkit) -> dict[str, str]:
    """The SASS of each kernel of the families' SOURCES, by its symbol."""
    return machine_code.functions(
        toolkit, [source for module in MODULES for source in module.SOURCES]
    )


def mistakes(sass: str) -> list[str]:
    """What is wrong with a kernel's code."""
    waited, found = False, []
    for _, name, rest in machine_code.INSTRUCTION.findall(sass):
        waited |= name == "ACQBULK"
        if name in GLOBAL and not waited:
            found.append(f"{name}{rest} before the wait")
        if name in GLOBAL and "CONSTANT" in rest:
            found.append(f"{name}{rest}: not coherent")
    return found if waited else ["it never waits", *found]


def test_kernels_wait_before_they_touch_global_memory(code):
    assert MODULES
    for kernel in (kernel for module in MODULES for kernel in module.DEPENDENT):
        name = re.compile(rf"\d{kernel}[IE]")  # as it is mangled, a template or not
        forms = {symbol: sass for symbol, sass in code.items() if name.search(symbol)}
        assert forms, kernel
        assert not {symbol: found for symbol, sass in forms.items() if (found := mistakes(sass))}


WAIT = "        /*0010*/                   ACQBULK ;\n"
LOAD = "        /*0020*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;\n"


def test_the_check_sees_what_it_must():
    assert not mistakes(WAIT + LOAD)
    assert mistakes(LOAD + WAIT) == ["LDG.E.128 before the wait"]
    assert mistakes(LOAD)[0] == "it never waits"
    assert mistakes(WAIT + LOAD.replace(".128", ".128.CONSTANT"))
