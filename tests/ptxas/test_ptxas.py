"""What ptxas says of every selected kernel: no spills, no stack frames, no injected waits.

Except for kernels whose family says how many bytes they may spill.

Registers and shared memory of hot kernels are compared with the tables that are checked in.
"""

import re

import pytest

from build_tools import compile, cuda, resources, settings, toolchain
from build_tools.settings import ROOT
from tests.tools import families

# Of a kernel, by its name: how many bytes of spill loads there may be.
SPILLS = {
    kernel: most
    for module in families.each("machine_code.py")
    for kernel, most in getattr(module, "SPILLS", {}).items()
}


@pytest.fixture(scope="module")
def reports(toolkit) -> dict[str, str]:
    """What ptxas printed, by the name of each kernel's object."""
    return resources.reports(toolkit)


def test_every_kernel_was_compiled(reports):
    assert reports
    for name, report in reports.items():
        assert resources.kernels(report), f"{name}: ptxas reported no kernel"


def test_no_spills_stack_frames_or_injected_waits(reports):
    found = [
        f"{name}: {line}"
        for name, text in reports.items()
        for line in resources.complaints(text)
        if not is_known(line)
    ]
    assert not found, "\n".join(found)


def is_known(complaint: str) -> bool:
    """Whether a kernel may spill as much."""
    loads = re.search(r"(\d+) bytes spill loads", complaint)
    return loads is not None and 0 < int(loads[1]) <= SPILLS.get(complaint.partition(": ")[0], 0)


def test_spills_that_are_allowed_are_there(reports):
    spilled = {
        line.partition(": ")[0] for text in reports.values() for line in resources.complaints(text)
    }
    compiled = {kernel.name for text in reports.values() for kernel in resources.kernels(text)}
    gone = [kernel for kernel in SPILLS if kernel in compiled and kernel not in spilled]
    assert not gone, f"{gone}: nothing is spilled any more"


def test_registers_and_shared_memory_are_those_of_the_table(toolkit, reports):
    sections = resources.sections(toolkit, reports)
    families = dict.fromkeys(map(resources.family_of, sections))
    tables = [resources.read_table(resources.table_of(name).read_text()) for name in families]
    for version, _ in tables:
        wanted, found = (toolchain.version_tuple(text)[:2] for text in (version, toolkit.version))
        if found != wanted:
            pytest.skip(f"a table is that of nvcc {version}, this one is {toolkit.version}")
    if resources.ARCHITECTURE not in settings.selected_architectures():
        pytest.skip(f"{resources.ARCHITECTURE} is not selected")
    remedy = "if the change is meant, `python -m build_tools resources` regenerates the tables"
    kept = {source: rows for _, table in tables for source, rows in table.items()}
    for name, rows in sections.items():
        assert kept.get(name) == rows, f"{name}: {remedy}"
    gone = [name for name in kept if not (ROOT / f"{name}.cu").is_file()]
    assert not gone, f"{gone}: no such source; {remedy}"


def test_kernels_of_bf16_are_hot():
    kernels = ("k<bf16, void, 8>", "counts", "k<half>", "k<bf16, float>", "k<f<float>, float>")
    hot = [name for name in kernels if resources.Kernel(name, 1, 0, 0).hot]
    assert hot == ["k<bf16, void, 8>", "counts"]


# What nvcc 13.0 prints, for functions that are named as they are here.
NOTE = "ptxas info    : (C7519) warpgroup.arrive is injected in around line 49 by compiler"
CLEAN = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"


@pytest.mark.parametrize(
    "line",
    [
        "    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
        "    0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads",
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are ...",
        f"{NOTE} to allow use of registers in GMMA in function 'kernel'",
    ],
)
def test_gate_sees_what_it_must(line):
    text = f"ptxas info    : Function properties for kernel\n{CLEAN}"
    assert not resources.complaints(text)
    assert resources.complaints(f"{text}\n{line}") == [f"kernel: {line.strip()}"]


def test_allowed_spills_have_a_limit():
    for kernel, most in SPILLS.items():
        text = f"{kernel}: 16 bytes stack frame, 8 bytes spill stores, "
        assert is_known(f"{text}{most} bytes spill loads")
        assert not is_known(f"{text}{most + 4} bytes spill loads")
        assert not is_known(f"{text}0 bytes spill loads")
        assert not is_known(f"{kernel}: {NOTE}")


def test_notes_name_their_own_function():
    text = f"{NOTE} in function '_ZN1a5firstEv'\nptxas info    : Function properties for second"
    assert resources.complaints(text)[0].startswith("first: ")


def test_gate_reads_what_this_ptxas_prints(toolkit):
    """Of kernels that are wrong on purpose, compiled with the flags of all others."""
    job = cuda.job(toolkit, (ROOT / "tests/ptxas/wrong.cu").relative_to(ROOT), "sm_90a")
    (result,) = compile.run([job], "Compiling kernels that are wrong on purpose")
    found = {}
    for line in resources.complaints(result.job.log_path.read_text()):
        name, what = line.split(": ", 1)
        found.setdefault(name, []).append(what)
    assert set(found) == {"reads_too_early", "lacks_a_fence", "spills"}, found
    for name, note in (("reads_too_early", "C7517"), ("lacks_a_fence", "C7519")):
        assert any(note in what for what in found[name]), found[name]
    assert re.search(r"[1-9]\d* bytes spill stores", " ".join(found["spills"]))


def test_names_are_short():
    mangled = (
        "_ZN14thunderkittens5sm90a27layer_norm_backward_dx_wideINS0_26layer_norm_backward_config"
        "I13__nv_bfloat16Li1EEEEEvNS_26layer_norm_backward_paramsENS0_10row_layoutE"
    )
    name = "layer_norm_backward_dx_wide<layer_norm_backward_config<bf16, 1>>"
    assert resources.short_name(mangled) == name
    assert resources.short_name("_Z4goodPf") == "good"
    assert resources.short_name("plain") == "plain"


def test_a_row_is_what_ptxas_says():
    text = (
        "ptxas info    : Compiling entry function '_Z4goodPf' for 'sm_90a'\n"
        f"ptxas info    : Function properties for _Z4goodPf\n{CLEAN}\n"
        "ptxas info    : Used 12 registers, used 1 barriers, 32 bytes smem\n"
    )
    (kernel,) = resources.kernels(text)
    assert kernel == resources.Kernel("good", 12, 1, 32)
    assert kernel.row(None) == "| `good` | 12 | 1 | 32 + at launch |"
    assert kernel.row(1000) == "| `good` | 12 | 1 | 1032 |"
