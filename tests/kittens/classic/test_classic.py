"""Kernels in CUDA's classic style on `<kittens.cuh>` alone: compiled for every GPU, and right.

They stand in CUDA's own words (`__shared__`, `threadIdx`, `<<<>>>`). For the simulator those are
replaced by the seam's, and nothing else; on a GPU they run as they are. The manual's examples are
among them.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import thunderkittens
from build_tools import compile, cuda, resources, settings, simulator, toolchain
from build_tools.settings import ROOT, BuildError
from tests.ptxas import machine_code, proxy_order
from tests.tools import tiles
from tests.tools.ahead import called_ahead

FOLDER = Path(__file__).parent
MANUAL, CLASSIC_MANUAL = ROOT / "docs/tiles.md", ROOT / "docs/classic.md"
LAUNCHES = "<kittens/host/launch.cuh>"  # of the demos, those that are for sm_90a alone
DEMOS = {f"demo_{path.stem}": path for path in (ROOT / "demos/custom_kernel").glob("*.cu")}
KERNELS = {
    **DEMOS,
    "attention": FOLDER / "attention.cu",  # for <kittens.cuh>; so is the next
    "projection": FOLDER / "projection.cu",
    "attention_in_tiles": FOLDER / "attention.cu",  # spelled as for <kittens/classic.cuh>
    "h100_attention": FOLDER / "h100_attention.cu",  # written for it, and for sm_90a alone
    "h100_gemm": FOLDER / "h100_gemm.cu",
    "rows": FOLDER / "rows",  # all of this folder in one program
    "classic_manual": CLASSIC_MANUAL,
    "manual": MANUAL,  # its examples, one after the other; some are for sm_90a alone
}
SM90A_ALONE = {name for name, path in DEMOS.items() if LAUNCHES in path.read_text()}
SM90A_ALONE |= {"classic_manual", "h100_attention", "h100_gemm", "manual"}
# One compilation for all GPUs. What is left out here for sm_90a is compiled, and checked, by
# tests/benchmarks/test_classic_benchmark.py.
COMPILED = {
    name: "sm_90a" if name in SM90A_ALONE else "sm_80+sm_89+sm_90a+sm_120"
    for name in KERNELS
    if name != "h100_gemm"
} | {"rows": "sm_80+sm_89+sm_120"}
WORDS = {
    r"extern __shared__ alignment_dummy __shm\[\];": (
        "auto* __shm = &kittens::testing::dynamic_shared<alignment_dummy>();"
    ),
    r"__shared__ (\w+) (\w+)((?:\[\w+\])?);": (
        r"auto& \2 = kittens::testing::static_shared<\1\3, __COUNTER__>();"
    ),
    r"__syncthreads\(\)": "arch::sync_block()",
    r"\bthreadIdx\.x": "unsigned(arch::thread_id())",
    r"\bblockIdx\.(\w)": r"unsigned(arch::block_\1())",
    r"(\w+)<<<([^,]+), ([^,]+), (\w+)>>>\(": r"\1<<<\2, \3, \4, nullptr>>>(",
    r"(\w+)<<<(.+)>>>\(": r"kittens::testing::launch_classic(\1, \2, ",
}
IN_TILES = {
    r"<kittens.cuh>": "<kittens/classic.cuh>",
    r"\b([rs]t_\w\w)_(\d)x(\d)<>": r"\1<\2, \3>",
    r"\b([rs]t_\w\w)_(\d)x(\d)<": r"\1<\2, \3, ",
}


def source_of(name: str, for_simulator: bool) -> Path:
    """Writes a kernel's source to a file of its own and returns that."""
    path = KERNELS[name]
    sources = sorted(path.glob("*.cu")) if path.is_dir() else [path]
    text = "\n".join(source.read_text() for source in sources)
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"^```cpp\n(.*?)^```", text, re.M | re.S))
    if name == "attention_in_tiles":
        for elements, base_tiles in IN_TILES.items():
            text = re.sub(elements, base_tiles, text)
    if for_simulator:
        for theirs, ours in WORDS.items():
            text = re.sub(theirs, ours, text)
    world = "simulator" if for_simulator else "cuda"
    path = settings.build_dir() / "generated/classic" / world / f"{name}.cu"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
    return path


def simulator_job(headers: toolchain.Cuda, source: str, name: str) -> compile.Job:
    """The job that compiles a source of this folder with a kernel for the simulator."""
    job = simulator.fast_kernel_job(headers, FOLDER / source, race=True)
    return with_kernel(job, name, for_simulator=True)


def with_kernel(job: compile.Job, name: str, for_simulator: bool) -> compile.Job:
    """The job, told where the kernel is."""
    kernel = source_of(name, for_simulator)
    flags = (f'-DKITTENS_CLASSIC_KERNEL="{kernel}"', "-I", str(KERNELS[name].parent))
    return dataclasses.replace(job, command=(job.command[0], *flags, *job.command[1:]))


def compiled(toolkit: toolchain.Cuda, name: str, architectures: str) -> compile.Result:
    """Compiles a kernel as README says, `nvcc -std=c++20 -I include_dir()`; for "sm_80+sm_89"."""
    source = source_of(name, for_simulator=False)
    includes = ("-I", thunderkittens.include_dir(), "-I", str(KERNELS[name].parent))
    numbers = [each.removeprefix("sm_") for each in architectures.split("+")]
    targets = [word for n in numbers for word in ("-gencode", f"arch=compute_{n},code=sm_{n}")]
    job = compile.Job(
        name=f"tests/kittens/classic/{name}.{architectures}",
        command=(
            *(toolkit.nvcc, "-std=c++20", *targets, "-Xptxas", "-v", *includes),
            *("-c", str(source), "-o", "{output}"),
        ),
        tool=f"nvcc {toolkit.version}",
        strict=("-Werror", "all-warnings"),
        log=".ptxas.txt",
    )
    (result,) = compile.run([job], f"{name} for {architectures}")
    return result


@pytest.fixture(scope="module")
def toolkit() -> toolchain.Cuda:
    found, reason = toolchain.find_cuda(None)
    if found is None:
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def report(request, toolkit) -> Iterator[Callable[[str], str]]:
    """Compiles a kernel for its architectures, and gives what ptxas says of it."""

    def run(name: str) -> str:
        return compiled(toolkit, name, COMPILED[name]).job.log_path.read_text()

    with called_ahead(request, run, "name") as ahead:
        yield ahead


@pytest.fixture(scope="module")
def headers() -> toolchain.Cuda:
    try:
        return simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def simulate(request, headers) -> Iterator[Callable[[str], list[tiles.Outcome]]]:
    """Builds a kernel with its check for the simulator, and runs it under each policy."""
    jobs = {name: simulator_job(headers, f"check_{name}.cu", name) for name in KERNELS}
    # A program of two translation units, one of each spelling.
    jobs["both"] = simulator_job(headers, "check_both.cu", "projection")
    shared = {"both": [simulator_job(headers, "h100_attention_alone.cu", "h100_attention")]}

    def run(name: str) -> list[tiles.Outcome]:
        (program,) = simulator.build_programs([jobs[name]], shared.get(name, ()))
        return [tiles.run(f"check_{name}.cu", program, policy) for policy in tiles.POLICIES]

    with called_ahead(request, run, "name") as ahead:
        yield ahead


@pytest.mark.tier(4)
@pytest.mark.parametrize("name", COMPILED)
def test_compiles_without_warnings_and_spills(name, report):
    said = report(name)
    assert resources.kernels(said) and not resources.complaints(said)
    for architecture in COMPILED[name].split("+"):
        assert f" for '{architecture}'" in said


def check_fences(toolkit: toolchain.Cuda, output: Path) -> int:
    """Checks that each kernel of an object with loads by TMA in a loop fences for maps outside.

    UTMACCTL is fence.proxy.tensormap. Returns how many kernels have such loads.
    """
    try:
        tool = toolchain.find_cuobjdump(toolkit)
    except BuildError as error:
        pytest.fail(str(error), pytrace=False)
    kernels = 0
    for sass in machine_code.disassembled(tool, output).values():
        flow = proxy_order.Flow(sass)
        names = [each.name.partition(".")[0] for each in flow.code]
        if any(name == "UTMALDG" and flow.repeats(i) for i, name in enumerate(names)):
            kernels += 1
            fences = [i for i, name in enumerate(names) if name == "UTMACCTL"]
            assert fences and not [str(flow.code[i]) for i in fences if flow.repeats(i)]
    return kernels


@pytest.mark.tier(4)
def test_maps_are_fenced_outside_of_loops(toolkit):
    assert check_fences(toolkit, compiled(toolkit, "h100_attention", "sm_90a").output) == 4


@pytest.mark.parametrize("name", [*KERNELS, "both"])
def test_right_in_the_simulator(name, simulate):
    for outcome in simulate(name):
        assert not outcome.failed, outcome.report


@pytest.mark.parametrize("name", DEMOS)
def test_the_demos_have_no_bank_conflicts(name, headers, tmp_path):
    """A pass over shared memory without a conflict is one wavefront (csrc/sim/facts.hpp)."""
    source, facts = f"check_{name}.cu", tmp_path / "facts.json"
    (program,) = simulator.build_programs([simulator_job(headers, source, name)])
    assert not tiles.run(source, program, f"eager,facts={facts}").failed
    for launch in json.loads(facts.read_text())["launches"]:
        assert launch["total"]["wavefronts"] == launch["total"]["passes"] > 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_right_on_the_gpu(name):
    check = f"classic/check_{name}.cu"
    compiler = cuda.tests_toolkit()
    job = cuda.job(compiler, (tiles.FOLDER / check).relative_to(ROOT), "sm_90a")
    (program,) = cuda.build_programs(compiler, [with_kernel(job, name, for_simulator=False)])
    outcome = tiles.run(check, program, tiles.GPU)
    assert not outcome.failed, outcome.report


def test_the_kernels_are_short_and_need_our_headers_alone():
    for name in ("attention", "projection", *DEMOS):
        text = KERNELS[name].read_text()
        includes = set(re.findall(r"#include (.+)", text)) - {'"kernels.h"'}
        assert includes == {"<kittens.cuh>", *([LAUNCHES] if name in SM90A_ALONE else [])}, name
        lines = {"demo_load_store_compute_finish": 120, "demo_flash_attention_3": 150}
        assert len(text.splitlines()) < lines.get(name, 100), name
