"""The machine code of programmatically launched kernels: nothing of memory before the wait.

nvcc may not move an access across `griddepcontrol.wait`, nor let it go by the cache that is not
coherent, which may hold what it held before the kernels in front had ended. What counts are paths:
where warps have roles, each waits in code of its own. A form that reads early
what its launch is promised to be constant (`BEFORE_THE_WAIT` of its family) has such reads there.
"""

import re

import pytest

from tests.ptxas import machine_code
from tests.ptxas.proxy_order import Flow
from tests.tools import families

MODULES = [module for module in families.each("machine_code.py") if module.DEPENDENT]
GLOBAL = {"LD", "ST", "LDG", "STG", "ATOM", "ATOMG", "RED", "REDG", "LDGSTS", "UBLKCP", "UTMALDG"}


@pytest.fixture(scope="module")
def code(toolkit) -> dict[str, str]:
    """The SASS of each kernel of the families' SOURCES, by its symbol."""
    return machine_code.functions(
        toolkit, [source for module in MODULES for source in module.SOURCES]
    )


def waits(flow: Flow, i: int) -> bool:
    """Whether all threads wait at an instruction, or jump over a wait and nothing else.

    They do the latter in begin_dependent_grid, where the grid is too large to have anything to wait
    for.
    """
    if flow.code[i].name == "BRA" and flow.code[i].predicate:
        over = range(i + 1, flow.jumps[i][-1])
        some = {flow.code[at].name.split(".")[0] for at in over}
        return "ACQBULK" in some and not some & GLOBAL and not any(at in flow.jumps for at in over)
    return flow.code[i].name == "ACQBULK" and not flow.code[i].predicate


def mistakes(sass: str, early: tuple[str, ...] = ()) -> list[str]:
    """What is wrong with a kernel's code, some of whose `early` stand before the wait."""
    flow = Flow(sass)
    names = [each.name.split(".")[0] for each in flow.code]
    before, rest = set(), [0]  # what some path reaches without a wait
    while rest:
        i = rest.pop()
        if i in before or i >= len(names):
            continue
        before.add(i)
        if not waits(flow, i):
            rest += flow.jumps.get(i, [i + 1])
    found = [
        f"{flow.code[i].name} before the wait"
        for i in sorted(before)
        if names[i] in GLOBAL and names[i] not in early
    ]
    found += [
        f"{each.name}: not coherent"
        for name, each in zip(names, flow.code, strict=True)
        if name in GLOBAL and "CONSTANT" in each.name
    ]
    if early and not any(names[i] in early for i in before):
        found.append("nothing is read early")
    return found if "ACQBULK" in names else ["it never waits", *found]


def early_reads(symbol: str) -> tuple[str, ...]:
    """What a kernel may have before the wait."""
    forms = {k: v for m in MODULES for k, v in getattr(m, "BEFORE_THE_WAIT", {}).items()}
    return next((names for form, names in forms.items() if re.search(form, symbol)), ())


def test_kernels_wait_before_they_touch_global_memory(code):
    assert MODULES
    for kernel in (kernel for module in MODULES for kernel in module.DEPENDENT):
        name = re.compile(rf"\d{kernel}[IE]")  # as it is mangled, a template or not
        forms = {symbol: sass for symbol, sass in code.items() if name.search(symbol)}
        assert forms, kernel
        found = {symbol: mistakes(sass, early_reads(symbol)) for symbol, sass in forms.items()}
        assert not {symbol: what for symbol, what in found.items() if what}


def test_forms_that_read_early_are_there(code):
    for module in MODULES:
        for form in getattr(module, "BEFORE_THE_WAIT", {}):
            assert any(re.search(form, symbol) for symbol in code), form


WAIT = "        /*0010*/                   ACQBULK ;\n"
LOAD = "        /*0020*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;\n"
SKIP = "        /*0000*/               @P1 BRA 0x20 ;\n"
ENDS = "        /*0018*/                   EXIT ;\n"


def test_the_check_sees_what_it_must():
    assert not mistakes(WAIT + LOAD)
    assert mistakes(LOAD + WAIT) == ["LDG.E.128 before the wait"]
    assert mistakes(LOAD)[0] == "it never waits"
    assert mistakes(WAIT + LOAD.replace(".128", ".128.CONSTANT"))
    assert not mistakes(SKIP + WAIT + LOAD)
    assert mistakes(SKIP + WAIT + ENDS + LOAD) == ["LDG.E.128 before the wait"]


def test_the_check_knows_what_is_read_early():
    early, store = ("LDG",), LOAD.replace("LDG", "STG")
    assert not mistakes(LOAD + WAIT, early)
    assert mistakes(store + LOAD + WAIT, early) == ["STG.E.128 before the wait"]
    assert mistakes(WAIT + LOAD, early) == ["nothing is read early"]
    assert mistakes(LOAD, early) == ["it never waits"]
