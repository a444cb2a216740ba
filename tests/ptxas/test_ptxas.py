"""What ptxas says of every selected kernel: no spills, no stack frames, no injected waits."""

import re

import pytest

from build_tools import compile, cuda
from build_tools.settings import BuildError

# wgmma in series: across function calls, for want of a fence, by an injected wait.
INJECTED_WAITS = ("C7510", "C7517", "C7519")


@pytest.fixture(scope="module")
def reports() -> dict[str, str]:
    """What ptxas printed, by the name of each kernel's object."""
    try:
        toolkit, reason = cuda.toolkit()
    except BuildError as error:
        toolkit, reason = None, str(error)
    if toolkit is None:
        pytest.skip(reason)
    results = compile.run(cuda.kernel_jobs(toolkit), "Compiling CUDA kernels")
    return {result.job.name: result.job.log_path.read_text() for result in results}


def complaints(report: str) -> list[str]:
    """Returns the lines that a report must not have, each with its function."""
    found, function = [], "?"
    for line in report.splitlines():
        name = re.search(r"(?:Function properties for|Compiling entry function) '?(\w+)", line)
        function = name[1] if name else function
        sizes = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", line)
        if any(int(size) for size in sizes) or any(note in line for note in INJECTED_WAITS):
            found.append(f"{function}: {line.strip()}")
    return found


def test_every_kernel_was_compiled(reports):
    assert reports
    for name, report in reports.items():
        assert re.search(r"Used \d+ registers", report), f"{name}: ptxas reported no kernel"


def test_no_spills_stack_frames_or_injected_waits(reports):
    found = [f"{name}: {line}" for name, text in reports.items() for line in complaints(text)]
    assert not found, "\n".join(found)


def test_gate_sees_what_it_must():
    clean = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    assert not complaints(f"ptxas info    : Function properties for kernel\n{clean}")
    for line in (
        "    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
        "    0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads",
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are ...",
    ):
        text = f"ptxas info    : Function properties for kernel\n{line}"
        assert complaints(text) == [f"kernel: {line.strip()}"]
