"""What the machine code of kernels with bulk or tensor copies must have: a fence before the arrive.

Of all threads that read or wrote what a copy overwrites next, and then a meeting of theirs.
"""

import pytest

from build_tools import resources
from tests.ptxas import machine_code, proxy_order
from tests.tools import families

# Of each kernel with such copies, the member of its shared memory from which on no copy writes.
ORDINARY_FROM = {
    kernel: member
    for module in families.each("machine_code.py")
    for kernel, member in getattr(module, "ORDINARY_FROM", {}).items()
}
# The members before, in order, that have copies of their own: others' do not write from there on.
OWN = {
    kernel: members
    for module in families.each("machine_code.py")
    for kernel, members in getattr(module, "COPIED_APART", {}).items()
}


@pytest.fixture(scope="module")
def code(toolkit) -> dict[str, dict[str, str]]:
    """The SASS of each kernel with copies, by its source and its short name."""
    return {
        source: {
            resources.short_name(symbol): sass
            for symbol, sass in some.items()
            if proxy_order.copies(sass)
        }
        for source, some in machine_code.functions_of(toolkit).items()
    }


def parts(toolkit, source: str, names: list[str]) -> dict[str, tuple[int, ...]]:
    """Where in its shared memory each kernel has what is a copy's own, and what no copy writes."""
    report = resources.reports(toolkit)[f"{source}.{resources.ARCHITECTURE}"]
    static = {kernel.name: kernel.static for kernel in resources.kernels(report)}
    wanted = {}
    for name in names:
        kernel, shared = name.partition("<")[0], resources.shared_type(name)
        last = ORDINARY_FROM[kernel]
        wanted |= {(name, member): offset(shared, member, last) for member in OWN.get(kernel, ())}
        wanted[name, last] = offset(shared, last, last)
    found = resources.constants(toolkit, source, "ordinary", wanted)
    return {
        name: tuple(value + static[name] for (of, _), value in found.items() if of == name)
        for name in names
    }


def offset(shared: str, member: str, otherwise: str) -> str:
    """The offset of a member of a struct, or of another one where there is no such member."""
    return (
        f"([]<class S>() {{ if constexpr (requires(S& s) {{ s.{member}; }}) "
        f"return __builtin_offsetof(S, {member}); "
        f"else return __builtin_offsetof(S, {otherwise}); }}.template operator()<{shared}>())"
    )


def test_it_is_known_what_copies_write(code):
    found = {name.partition("<")[0] for some in code.values() for name in some}
    assert found, "no kernel has bulk or tensor copies"
    new = found - ORDINARY_FROM.keys()
    assert not new, f"{new}: from which member of its shared memory on do copies write nothing?"


def test_threads_fence_and_meet_before_they_arrive(toolkit, code):
    said = []
    for source, some in code.items():
        at = parts(toolkit, source, list(some)) if some else {}
        for name, sass in some.items():
            found = proxy_order.findings(sass, at[name])
            said += [f"{name}: {line}" for line in found]
    assert not said, "\n".join(said)


# ---- What the check must see, and what it must not -----------------------------------------------

READ, READ_ORDINARY = "LDS.128 R4, [R2+0x20]", "LDS R4, [R2+UR4+0x4000]"
FENCE, MEET, MEET_MAYBE = "FENCE.VIEW.ASYNC.S", "BAR.SYNC.DEFER_BLOCKING 0x1, 0x80", "NOP"
ARRIVE = "@!P0 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4+0x4008], RZ"
PRODUCT = "HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24, gsb0"
EXPECT = "SYNCS.ARRIVE.TRANS64.RED.A0TR RZ, [UR4+0x4000], R4"
BULK, TENSOR, STORE = (
    "UBLKCP.S.G [UR4], [UR6], UR8",
    "UTMALDG.5D [UR8], [UR16]",
    "UBLKCP.G.S [UR4], [UR6], UR8",
)


def listing(*names: str) -> str:
    """Instructions at 0x00, 0x10, …"""
    return "".join(f"        /*{16 * i:04x}*/      {s} ;\n" for i, s in enumerate((*names, "EXIT")))


def found(*names: str) -> list[int]:
    """The places of what the check says, counted in instructions."""
    lines = proxy_order.findings(listing(*names), [0x2000, 0x4000])
    return [int(line.split()[0], 16) // 16 for line in lines]


@pytest.mark.parametrize("read", [READ, "LDSM.16.M88.4 R4, [UR6]", "LD.E R4, desc[UR6][R2.64]"])
@pytest.mark.parametrize("arrive", [ARRIVE, "ARRIVES.LDGSTSBAR.64 [UR6+0x1100]", BULK, TENSOR])
def test_reads_are_seen(read, arrive):
    assert found(read, MEET, arrive) == [2]
    assert found(f"@P1 {read}", arrive) == [1]
    assert found(read, FENCE, MEET, arrive) == []


def test_what_is_in_order_is_not_seen():
    assert found(f"@!PT {READ}", ARRIVE) == []  # never executed
    assert found(PRODUCT, ARRIVE) == []
    assert found(READ_ORDINARY, ARRIVE) == []
    assert found(ARRIVE, READ) == []
    assert found(READ, EXPECT) == found(READ, STORE) == []
    assert found(READ, FENCE, MEET_MAYBE, ARRIVE) == []
    assert found(READ, FENCE, "BRA.DIV UR4, 0x40", ARRIVE, "WARPSYNC.COLLECTIVE R4, 0x50") == []


@pytest.mark.parametrize(
    "write", ["STS.128 [R2+0x20], R4", "STSM.16.M88.4 [R2], R4", "ATOMS.ADD R4, [R2], R5"]
)
def test_writes_are_seen(write):
    assert found(write, MEET, ARRIVE) == [2]
    assert found(write, FENCE, MEET, ARRIVE) == []


def test_a_fence_must_be_one_of_all_threads_and_of_shared_memory():
    assert found(READ, MEET, FENCE, ARRIVE) == [3]  # of the thread that arrives
    assert found(READ, MEET, "@P0 BRA 0x50", FENCE, ARRIVE) == [4]
    assert found(READ, FENCE, "BAR.ARV 0x1, 0x80", ARRIVE) == [3]
    assert found(READ, f"@P0 {FENCE}", MEET, ARRIVE) == [3]
    assert found(READ, "FENCE.VIEW.ASYNC.G", MEET, ARRIVE) == [3]
    assert found(READ, "MEMBAR.ALL.CTA", MEET, ARRIVE) == [3]
    assert found(READ, FENCE, BULK) == []  # a thread's own copy


def test_a_fence_must_stand_on_every_path():
    assert found("@P0 BRA 0x30", READ, "BRA 0x40", FENCE, MEET, ARRIVE) == [5]
    assert found("@P0 BRA 0x30", READ, "BRA 0x30", FENCE, MEET, ARRIVE) == []
    assert found(READ, "BRA UP0, 0x40", FENCE, MEET, ARRIVE) == [4]
    assert found(FENCE, READ, MEET, "BRA 0x50", FENCE, ARRIVE) == [5]
    assert found(READ, "@P1 EXIT", "BRA 0x40", ARRIVE) == []
    assert found(READ, "EXIT", ARRIVE) == []


def test_a_loop_brings_its_reads_round():
    assert found(ARRIVE, READ, "@P0 BRA 0x0") == [0]
    assert found(ARRIVE, READ, FENCE, MEET, "@P0 BRA 0x0") == []
    assert found(READ, FENCE, MEET, ARRIVE, READ, "@P0 BRA 0x10") == []
    assert found(READ, FENCE, MEET, ARRIVE, READ, "@P0 BRA 0x20") == [3]


START = "ULEA UR8, UR9, UR8, 0x18"  # of shared memory


@pytest.mark.parametrize(
    ("computed", "read"),
    [
        (["VIADD R2, R3, 0x4000"], "LDS.64 R4, [R2+0x20]"),
        (["IADD3 R2, R6, 0x4000, R3", "LEA R2, R7, R2, 0x3"], "LDS R4, [R2]"),
        (["UIADD3 UR4, UR8, 0x4000, URZ", "IMAD R2, R5, 0x610, R6"], "LDS R4, [R2+UR4]"),
    ],
)
def test_addresses_are_followed_back_to_what_they_are_computed_from(computed, read):
    start = [START, "IMAD.U32 R3, RZ, RZ, UR8", "IMAD.IADD R3, R7, 0x1, R3"]
    assert found(*start, *computed, read, ARRIVE) == []
    nearer = [each.replace("0x4000", "0x3000") for each in computed]
    assert found(*start, *nearer, read, ARRIVE) == [4 + len(computed)]


def test_addresses_are_those_of_all_paths():
    start = (START, "IMAD.U32 R2, RZ, RZ, UR8")
    more, read = "VIADD R2, R2, 0x4000", "LDS R4, [R2]"
    assert found(*start, more, read, ARRIVE) == []
    assert found(*start, f"@P0 {more}", read, ARRIVE) == [4]
    assert found(*start, f"@P0 {more}", f"@P0 {read}", ARRIVE) == []
    assert found(
        *start, f"@P0 {more}", "ISETP.NE.AND P0, PT, R3, RZ, PT", f"@P0 {read}", ARRIVE
    ) == [5]
    assert found(*start, "@P0 BRA 0x40", more, read, ARRIVE) == [5]
    assert found(*start, more, read, ARRIVE, "VIADD R2, R2, 0x80", "@P0 BRA 0x30") == []
    assert found(*start, more, read, ARRIVE, "LDS R2, [R5]", "@P0 BRA 0x30") == [4]
    assert found(*start, more, "IADD3 R2, R2, -R5, RZ", read, ARRIVE) == [5]
    assert found(*start, more, "IADD3 R2, R2, -RZ, RZ", read, ARRIVE) == []
    # Two that change places round a loop, one in front and one behind.
    swap = ("MOV R5, R2", "MOV R2, R3", "MOV R3, R5", "@P0 BRA 0x40")
    assert found(*start, "MOV R3, R2", more, read, ARRIVE, *swap) == [5]
    behind = ("VIADD R3, R2, 0x4000", "VIADD R2, R2, 0x4800")
    assert found(*start, *behind, read, ARRIVE, *swap) == []
    # Registers written beside others.
    assert found(*start, more, "LDS.64 R1, [R5+0x4000]", read, ARRIVE) == [5]
    assert found(*start, more, "IMAD.WIDE R1, R5, 0x8, R6", read, ARRIVE) == [5]
    assert found(*start, more, "SHF.L.U64.HI R1, R5, 0x7, R6", read, ARRIVE) == []
    assert found(*start, more, "HGMMA.64x64x16.F32.BF16 R0, gdesc[UR8], R0", read, ARRIVE) == [5]


def test_copies_find_what_they_overwrite():
    start = (START, "UIADD3 UR4, UR8, 0x2000, URZ")
    before, own = "LDS R4, [UR8+0x1000]", "LDS R4, [UR8+0x3000]"
    expect, copy = "SYNCS.ARRIVE.TRANS64 RZ, [UR8+0x5000], R4", "UTMALDG.5D [UR4], [UR16]"
    assert found(*start, before, expect, copy) == []
    assert found(*start, own, expect, copy) == [3, 4]
    assert found(*start, own, FENCE, expect, copy) == [4]  # and no meeting
    assert found(*start, before, expect, copy, "UTMALDG.5D [UR8], [UR16]") == [3, 5]
    assert found(*start, before, expect, copy, ARRIVE) == [5]
    assert found(*start, before, expect) == [3]  # of no copies that are known
    assert found(*start, before, "R2UR UR4, R9", expect, copy) == [4, 5]  # to where none knows


def test_copies_by_elected_threads_find_what_they_overwrite():
    start = (START, "UIADD3 UR4, UR8, 0x0, URZ", "VIADD R57, R2, 0x2000", "@P0 ELECT P2, URZ, PT")
    start = (START, "IMAD.U32 R2, RZ, RZ, UR8", *start[1:])
    before, own = "LDS R4, [UR8+0x1000]", "LDS R4, [UR8+0x3000]"
    write, copy = "@P2 R2UR UR4, R57", "UTMALDG.5D [UR4], [UR16]"
    assert found(*start, write, before, copy) == []
    assert found(*start, write, own, copy) == [7]
    # By another predicate, or where none is elected, it may be what it was.
    assert found(*start, write.replace("P2", "P1"), before, copy) == [7]
    assert found(*start, write.replace("P2", "!P2"), before, copy) == [7]
    assert found(*start[:-1], write, before, copy) == [6]
    assert found(*start, "ISETP.NE.AND P2, PT, R3, RZ, PT", write, before, copy) == [8]
    # Nor where a jump leads to behind the election.
    assert found(*start[:-1], "@P1 BRA 0x60", start[-1], write, before, copy) == [8]
    assert found(*start[:-1], "@P1 BRA 0x50", start[-1], write, before, copy) == []


def test_functions_return_to_their_callers():
    nothing, reads = ["FADD R1, R1, R2", "RET.REL.NODEC R8 0x0"], [READ, "RET.REL.NODEC R8 0x0"]
    call = "CALL.REL.NOINC 0x50"
    # A function in which nothing counts does not lead from one caller to another.
    assert found(call, ARRIVE, READ, call, "EXIT", *nothing) == []
    assert found(call, ARRIVE, "EXIT", "EXIT", "EXIT", *reads) == [1]
    assert found("EXIT", call, ARRIVE, "EXIT", "EXIT", *reads) == []


def test_what_cannot_be_followed_is_an_error():
    with pytest.raises(ValueError, match="BRX"):
        found(READ, "BRX R4 -0x1000", ARRIVE)


def test_copies_into_shared_memory_are_recognised():
    assert all(proxy_order.copies(listing(name)) for name in (BULK, TENSOR, f"@P0 {TENSOR}"))
    assert not proxy_order.copies(
        listing(STORE, "UTMASTG.5D [UR8], [UR22]", "LDGSTS.E [R1], [R2.64]")
    )


def test_a_finding_says_what_is_where():
    (line,) = proxy_order.findings(listing(READ, ARRIVE))
    assert line == f"0010 {ARRIVE}: no fence since 0000 {READ}"
