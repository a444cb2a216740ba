"""What ptxas says of generic kernels for other architectures than the one whose table is kept."""

import re
from pathlib import Path

import pytest

from build_tools import compile, cuda, resources
from tests.ptxas.machine_code import GENERIC_ARCHITECTURES, GENERIC_FORMS
from tests.tools import families

# Of a kernel of an architecture: how many bytes of spill loads there are, at most.
SPILLS = {
    known: most
    for module in families.each("machine_code.py")
    for known, most in getattr(module, "GENERIC_SPILLS", {}).items()
}


@pytest.mark.parametrize("architecture", GENERIC_ARCHITECTURES)
@pytest.mark.parametrize("source", GENERIC_FORMS)
def test_generic_kernels_spill_no_more_than_is_known(toolkit, source, architecture):
    """Nor do they need more shared memory than there is: a static_assert beside their launch.

    Or more threads: ptxas refuses __launch_bounds__ of more than a multiprocessor has.
    """
    path = Path(source)
    (result,) = compile.run([cuda.job(toolkit, path, architecture)], "Compiling generic kernels")
    report = result.job.log_path.read_text()
    found = resources.kernels(report)
    assert found, "ptxas reported no kernel"
    assert f"'{architecture}'" in report
    assert not [line for line in resources.complaints(report) if not _is_known(architecture, line)]
    assert not [kernel for kernel in found if kernel.static], (
        "shared memory beside what is asserted"
    )


def test_every_generic_kernel_is_among_them(toolkit):
    """By its name: of some, other forms and element types are left out."""
    sources = [job for job in cuda.kernel_jobs(toolkit) if "_sm90." not in Path(job.name).name]
    forms = [cuda.job(toolkit, Path(source), GENERIC_ARCHITECTURES[-1]) for source in GENERIC_FORMS]
    every, among = _kernels(sources), _kernels(forms)
    assert len(every) > 30
    missing = sorted(every - among)
    assert not missing, "no GENERIC_FORMS of a family has a form of them"


def _kernels(jobs: list[compile.Job]) -> set[str]:
    """The names of the kernels that these compile, without their arguments."""
    results = compile.run(jobs, "Compiling kernels")
    reports = (result.job.log_path.read_text() for result in results)
    return {each.name.partition("<")[0] for text in reports for each in resources.kernels(text)}


def _is_known(architecture: str, complaint: str) -> bool:
    loads = re.search(r"(\d+) bytes spill loads", complaint)
    most = SPILLS.get((architecture, complaint.partition(": ")[0]), 0)
    return loads is not None and 0 < int(loads[1]) <= most
