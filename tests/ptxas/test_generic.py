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


def _is_known(architecture: str, complaint: str) -> bool:
    loads = re.search(r"(\d+) bytes spill loads", complaint)
    most = SPILLS.get((architecture, complaint.partition(": ")[0]), 0)
    return loads is not None and 0 < int(loads[1]) <= most
