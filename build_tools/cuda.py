"""Compiles the CUDA kernels with nvcc, each for its architectures."""

from collections.abc import Iterable
from pathlib import Path

import configs
from build_tools import compile, cxx, settings, toolchain
from build_tools.settings import ROOT, BuildError

DEVICE_QUERY = "csrc/host/device.cu"
# The first CUDA whose nvcc knows an architecture, where that is not the oldest that builds ours.
FIRST_CUDA = {"sm_100": (12, 8), "sm_103": (12, 9), "sm_120": (12, 8)}


def toolkit() -> tuple[toolchain.Cuda | None, str]:
    """Returns the CUDA toolkit to build the package's kernels with, or None and the reason.

    Raises:
        BuildError: CUDA was asked for (THUNDERKITTENS_CUDA=1), or an nvcc is there that cannot
            be used: leaving the kernels out silently would be worse.
    """
    mode = settings.cuda_mode()
    if mode == "0":
        return None, "THUNDERKITTENS_CUDA=0"
    torch = toolchain.find_torch()
    if torch.cuda is None:
        reason = f"PyTorch {torch.version} is built without CUDA"
        if mode == "1":
            raise BuildError(
                f"THUNDERKITTENS_CUDA=1: {reason}; install one with CUDA: "
                f"`{toolchain.pip()} --force-reinstall torch`"
            )
        return None, reason
    cuda, reason = toolchain.find_cuda(int(torch.cuda.split(".")[0]))
    if cuda is None and (mode == "1" or "found none" not in reason):
        raise BuildError(reason)
    return cuda, reason


def sources(kernel: configs.Kernel) -> list[Path]:
    """Returns a family's CUDA sources, relative to the repository."""
    return [
        path.relative_to(ROOT) for path in sorted(ROOT.glob(f"csrc/kernels/{kernel.name}/*.cu"))
    ]


def architectures(source: Path, wanted: tuple[str, ...]) -> list[str]:
    """Returns for which of the wanted architectures a source is compiled."""
    return [name for name in wanted if name == "sm_90a" or not source.stem.endswith("_sm90")]


def kernel_jobs(cuda: toolchain.Cuda) -> list[compile.Job]:
    """Returns the compilation of every selected kernel for every selected architecture.

    Raises:
        BuildError: nvcc is too old for one of them.
    """
    wanted = settings.selected_architectures()
    for name in wanted:
        first = FIRST_CUDA.get(name, settings.MINIMUM_CUDA)
        if toolchain.version_tuple(cuda.version)[:2] < first:
            raise BuildError(
                f"THUNDERKITTENS_ARCHITECTURES: {name} needs CUDA {'.'.join(map(str, first))}, "
                f"found {cuda.version} ({cuda.nvcc})"
            )
    jobs = []
    for kernel in settings.selected_kernels():
        own = tuple(name for name in wanted if name in kernel.architectures)
        for source in sources(kernel):
            jobs += [job(cuda, source, name, kernel.name) for name in architectures(source, own)]
    return jobs


def device_job(cuda: toolchain.Cuda) -> compile.Job:
    """Returns the compilation of the device query: host code, the same for all architectures."""
    return job(cuda, Path(DEVICE_QUERY), settings.selected_architectures()[-1])


def job(cuda: toolchain.Cuda, source: Path, architecture: str, kernel: str = "") -> compile.Job:
    """Returns the compilation of one CUDA source for one architecture.

    The shorthand -arch would add a pass for plain compute_90, which lacks wgmma.
    """
    compiler = toolchain.find_compiler()
    number = architecture.removeprefix("sm_")
    command = (
        cuda.nvcc,
        *configs.NVCC_FLAGS,
        *configs.PTXAS_FLAGS,
        "-gencode",
        f"arch=compute_{number},code={architecture}",
        f"-DKITTENS_TARGET={architecture.replace('_', '')}",
        "-ccbin",
        compiler.path,
        *cxx.INCLUDES,
        *(("-I", "tests/kittens") if source.parts[0] == "tests" else ()),
        "-c",
        str(source),
        "-o",
        "{output}",
    )
    name = f"{source.with_suffix('')}.{architecture}"
    return compile.Job(
        name=name,
        command=command,
        tool=f"nvcc {cuda.version}, {compiler.name}",
        strict=("-Werror", "all-warnings"),
        kernel=kernel and f"{kernel}/{source.stem} {architecture}",
        log=".ptxas.txt",
    )


def build_test(path: str | Path) -> Path:
    """Builds a test of the tile layer, `tests/kittens/**/test_*.cu`, for the GPU.

    Returns:
        The executable.
    """
    return build_tests([path])[0]


def build_tests(paths: Iterable[str | Path]) -> list[Path]:
    """Builds tests of the tile layer, as many at a time as the machine can.

    Returns:
        The executables, in order.
    """
    cuda = tests_toolkit()
    sources = [Path(path).resolve().relative_to(ROOT) for path in paths]
    return build_programs(cuda, [job(cuda, source, "sm_90a") for source in sources])


def build_programs(cuda: toolchain.Cuda, jobs: list[compile.Job]) -> list[Path]:
    """Compiles programs for the GPU, each of one source, and links them with what they need.

    Returns:
        The executables, in order.
    """
    host = [*cxx.host_jobs(), device_job(cuda)]
    what = jobs[0].name if len(jobs) == 1 else "Tests of the tile layer for the GPU"
    objects = compile.run([*host, *jobs], what)
    links = [
        cxx.link_job(one.job.name, [*objects[: len(host)], one], (str(cuda.cudart),))
        for one in objects[len(host) :]
    ]
    return [result.output for result in compile.run(links, "Linking")]


def tests_toolkit() -> toolchain.Cuda:
    """Returns the toolkit to build tests with.

    Raises:
        BuildError: There is none.
    """
    torch = toolchain.find_torch()
    cuda, reason = toolchain.find_cuda(int(torch.cuda.split(".")[0]) if torch.cuda else None)
    if cuda is None:
        raise BuildError(reason)
    return cuda
