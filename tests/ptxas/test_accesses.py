"""Each access and each barrier that the kernels' sources name is in their machine code.

A compiler may leave out what it takes to be unreachable, without a word: nvcc 13.0 did so with the
features of based_attention_step, behind an assumption about a pointer's state space (arch/ptx/
memory.cuh). The simulator, built by another compiler, cannot tell.

By the line information: a line of `csrc/kernels` that calls a function of the seam that loads,
stores, copies, multiplies or synchronises must be that of an instruction, in one of its instances
at least.
"""

import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from build_tools import compile, cuda, resources, settings, toolchain
from build_tools.settings import ROOT, BuildError
from tests.ptxas.machine_code import GENERIC_ARCHITECTURES, GENERIC_FORMS

KERNELS = "csrc/kernels"
ACCESS = re.compile(
    r"\barch::(?:load|store|cp_|atomic|mma|wgmma|bulk|sync|fence|named_barrier)\w*"
    r"(?:<[^()]*>)?\("
)
LINE = re.compile(r'//## File "[^"]*?((?:csrc|tests)/[^"]+)", line (\d+)')
# Which are no instruction: they tell the compiler that registers are in use.
NO_INSTRUCTION = re.compile(r"\barch::wgmma_hold\(")


@pytest.fixture(scope="module")
def tools(toolkit) -> tuple[str, str]:
    """cuobjdump and nvdisasm. Where there is an nvcc they must be there, too."""
    try:
        return toolchain.find_cuobjdump(toolkit), toolchain.find_nvdisasm(toolkit)
    except BuildError as error:
        pytest.fail(str(error), pytrace=False)


def lines_of(tools: tuple[str, str], objects: Iterable[Path], folder: Path) -> set[tuple[str, int]]:
    """The lines, (path in the repository, number), that the objects' machine code has."""
    with ThreadPoolExecutor(settings.jobs()) as pool:
        found = pool.map(partial(_lines_of_one, tools, folder), objects)
        return set().union(*found)


def _lines_of_one(tools: tuple[str, str], folder: Path, one: Path) -> set[tuple[str, int]]:
    cuobjdump, nvdisasm = tools
    own = folder / one.name
    own.mkdir()
    subprocess.run([cuobjdump, "-xelf", "all", one], cwd=own, capture_output=True, check=True)
    lines: set[tuple[str, int]] = set()
    for binary in own.glob("*.cubin"):
        command = [nvdisasm, "-c", "-gi", binary]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines.update((path, int(number)) for path, number in set(LINE.findall(text)))
    return lines


def left_out(paths: Iterable[Path], lines: set[tuple[str, int]]) -> list[str]:
    """The accesses of sources that are compiled at all, without an instruction.

    Of accesses in lines that follow one another some may have none: where nvcc makes one of what
    two branches have in common, it forgets lines. What is left out is left out as a whole.
    """
    compiled = {path for path, _ in lines}
    found = []
    for path in paths:
        name = str(path.relative_to(ROOT))
        run: list[tuple[int, str]] = []
        for number, text in enumerate([*path.read_text().splitlines(), ""], 1):
            if ACCESS.search(NO_INSTRUCTION.sub("", text.partition("//")[0])):
                run.append((number, text.strip()))
                continue
            if name in compiled and not any((name, number) in lines for number, _ in run):
                found += [f"{name}:{number}: {text}" for number, text in run]
            run = []
    return found


def test_each_access_is_in_the_machine_code(toolkit, tools, tmp_path):
    jobs = [
        job for job in cuda.kernel_jobs(toolkit) if job.name.endswith(f".{resources.ARCHITECTURE}")
    ]
    # What generic kernels have for GPUs of less shared memory alone.
    jobs += [
        cuda.job(toolkit, Path(source), architecture)
        for source in GENERIC_FORMS
        for architecture in GENERIC_ARCHITECTURES
    ]
    objects = compile.run(jobs, resources.TITLE)
    lines = lines_of(tools, [one.output for one in objects], tmp_path)
    sources = sorted((ROOT / KERNELS).glob("*/*.cuh"))
    compiled = {path for path, _ in lines}
    assert len([path for path in sources if str(path.relative_to(ROOT)) in compiled]) > 40
    missing = left_out(sources, lines)
    assert not missing, "\n".join(["nvcc has left out", *missing])


def test_what_is_left_out_is_found(toolkit, tools, tmp_path):
    source = Path("tests/ptxas/left_out.cu")
    (built,) = compile.run([cuda.job(toolkit, source, resources.ARCHITECTURE)], resources.TITLE)
    lines = lines_of(tools, [built.output], tmp_path)
    (found,) = left_out([ROOT / source], lines)
    assert "arch::store_shared(&words[1]" in found
