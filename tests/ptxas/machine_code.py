"""The SASS of kernels, as the cuobjdump that torch's triton brings shows it."""

import re
import subprocess
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from build_tools import compile, cuda, resources, toolchain

# Whether it is predicated, its name, and what else stands there.
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+ )?([A-Z]\w*)(\S*)", re.M)


def functions(toolkit: toolchain.Cuda, sources: Iterable[str]) -> dict[str, str]:
    """The SASS of each kernel of some sources, by its symbol; skips where there is no cuobjdump."""
    triton = find_spec("triton")
    tool = Path(triton.origin).parent / "backends/nvidia/bin/cuobjdump" if triton else None
    if tool is None or not tool.is_file():
        pytest.skip("torch's triton brings no cuobjdump")
    wanted = {f"{source}.{resources.ARCHITECTURE}" for source in sources}
    jobs = [job for job in cuda.kernel_jobs(toolkit) if job.name in wanted]
    found: dict[str, str] = {}
    for result in compile.run(jobs, resources.TITLE):
        command = [str(tool), "-sass", str(result.output)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        _, *some = re.split(r"^\s*Function : ", text, flags=re.M)
        found |= dict(function.split("\n", 1) for function in some)
    return found
