"""The SASS of kernels, as a cuobjdump shows it."""

import functools
import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from build_tools import compile, cuda, resources, settings, toolchain
from build_tools.settings import BuildError
from tests.tools import families

# Sources with generic kernels of each form, relative to the repository, and what they are compiled
# for besides the architecture whose table is kept.
GENERIC_FORMS = [
    source
    for module in families.each("machine_code.py")
    for source in getattr(module, "GENERIC_FORMS", ())
]
GENERIC_ARCHITECTURES = ("sm_80", "sm_89", "sm_120")
# Whether it is predicated, its name, and what else stands there.
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+ )?([A-Z]\w*)(\S*)", re.M)
LISTED = re.compile(r"^\s+(?:/\*[0-9a-f]{4,}\*/\s+|Function : )[^;\n]*;?", re.M)  # without its code


def functions(toolkit: toolchain.Cuda, sources: Iterable[str]) -> dict[str, str]:
    """The SASS of each kernel of some sources, by its symbol."""
    found = functions_of(toolkit, sources)
    return {symbol: sass for some in found.values() for symbol, sass in some.items()}


def functions_of(
    toolkit: toolchain.Cuda, sources: Iterable[str] | None = None
) -> dict[str, dict[str, str]]:
    """The SASS of each kernel, by its source, or all of them, and by its symbol.

    Where there is an nvcc there must be a disassembler: one that is missing fails the test.
    """
    try:
        tool = toolchain.find_cuobjdump(toolkit)
    except BuildError as error:
        pytest.fail(str(error), pytrace=False)
    ending = f".{resources.ARCHITECTURE}"
    jobs = {job.name.removesuffix(ending): job for job in cuda.kernel_jobs(toolkit)}
    names = [name for name, job in jobs.items() if job.name.endswith(ending)]
    names = [name for name in names if sources is None or name in sources]
    objects = compile.run([jobs[name] for name in names], resources.TITLE)
    with ThreadPoolExecutor(settings.jobs()) as pool:
        found = pool.map(functools.partial(disassembled, tool), [one.output for one in objects])
        return dict(zip(names, found, strict=True))


@functools.cache  # the objects of a session stay as they are
def disassembled(tool: str, path: Path) -> dict[str, str]:
    """The SASS of each kernel of an object, by its symbol; `tool`: a cuobjdump."""
    command = [tool, "-sass", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    listing = "\n".join(LISTED.findall(text))
    _, *some = re.split(r"^\s*Function : ", listing, flags=re.M)
    return dict(function.split("\n", 1) for function in some)
