"""`make train`: the trainer without Python and torch, for a GPU or for the simulator."""

import os
import subprocess
import sys
from pathlib import Path

from build_tools import (
    compile,
    cpp,
    cuda,
    cxx,
    environment,
    fingerprint,
    ops,
    settings,
    simulator,
    toolchain,
)
from build_tools.settings import ROOT, BuildError

FOLDER = Path("demos/train_gpt2")
MAIN = FOLDER / "train.cpp"
ON_GPU, ON_CPU = FOLDER / "products_cublaslt.cpp", FOLDER / "products_loops.cpp"
WITH_CUDA = (FOLDER / "memory.cpp", ON_GPU)  # which include CUDA's headers


def run(arguments: list[str]) -> int:
    """Builds and runs it; returns the exit status.

    Args:
        arguments: Of the program; `--simulator` runs the kernels on the CPU where a GPU is there,
            too.
    """
    simulated = "--simulator" in arguments or not environment.has_driver()
    program = build(simulated)
    command = [program, *(a for a in arguments if a != "--simulator")]
    return subprocess.run(command, env=variables()).returncode


def variables() -> dict[str, str]:
    """Returns the environment to run it in, where several ranks find a Python package's NCCL."""
    folders = [str(p) for folder in sys.path for p in Path(folder or ".").glob("nvidia/nccl/lib")]
    if before := os.environ.get("LD_LIBRARY_PATH"):
        folders.insert(0, before)
    return os.environ | ({"LD_LIBRARY_PATH": ":".join(folders)} if folders else {})


def build(simulated: bool, package: Path = settings.PACKAGE) -> Path:
    """Builds the kernels' library, for the CPU the simulator too, and the program.

    Returns:
        The program; it finds the libraries where they are.
    """
    toolkit = cpp.build_libraries(simulated, package)
    return build_program(MAIN, toolkit, package)


def build_program(
    main: Path, toolkit: toolchain.Cuda | None, package: Path, *, race: bool = False
) -> Path:
    """Compiles and links the trainer, or another program on its parts.

    Args:
        main: The source with `main`, relative to the repository.
        toolkit: For a program that runs on a GPU; None: the simulator runs its kernels.
        package: The folder whose `lib` holds the libraries.
        race: Of the simulator: for its race mode.

    Returns:
        The program.
    """
    results = compile.run([*_host_jobs(main, toolkit), *_kernel_jobs(toolkit, race)], "Compiling")
    kernels = str(package / "lib" / ops.KERNELS)
    if toolkit:
        libraries = (kernels, str(toolkit.cudart), str(cublaslt(toolkit)))
    else:  # A launcher enters itself when its library is loaded: nobody calls it by name.
        library = simulator.RACE_LIBRARY if race else simulator.LIBRARY
        libraries = ("-Wl,--no-as-needed", kernels, str(package / "lib" / library))
    target = "sm_90a" if toolkit else "simulator_race" if race else "simulator"
    name = f"{main.with_suffix('')}.{target}"
    return ROOT / compile.run([cxx.link_job(name, results, libraries)], "Linking")[0].output


def cublaslt(toolkit: toolchain.Cuda) -> Path:
    """Returns cuBLASLt's library, beside CUDA's runtime.

    Raises:
        BuildError: It is not there.
    """
    found = sorted(toolkit.cudart.parent.glob("libcublasLt.so*"))
    if not found:
        raise BuildError(
            f"the trainer needs cuBLASLt: found no libcublasLt.so in {toolkit.cudart.parent}, "
            f"beside CUDA's runtime; install CUDA's package nvidia-cublas, or use --simulator"
        )
    return found[0]


def _host_jobs(main: Path, toolkit: toolchain.Cuda | None) -> list[compile.Job]:
    parts = [source for source in cxx.sources(str(FOLDER)) if source not in (MAIN, ON_GPU, ON_CPU)]
    jobs = []
    for source in [main, *parts, ON_GPU if toolkit else ON_CPU]:
        with_cuda = toolkit is not None and source in WITH_CUDA
        flags = ("-DWITH_CUDA", "-isystem", str(toolkit.include)) if with_cuda else ()
        if source == main:
            flags = (*fingerprint.flags(), *flags)
        jobs.append(cxx.job(source, flags=("-I", str(FOLDER), *flags)))
    return jobs


def _kernel_jobs(toolkit: toolchain.Cuda | None, race: bool) -> list[compile.Job]:
    """Returns the compilations of its kernels, for the CPU with the simulator that runs them."""
    sources = sorted((ROOT / FOLDER).glob("*.cu"))
    if toolkit:
        return [cuda.job(toolkit, path.relative_to(ROOT), "sm_90a") for path in sources]
    headers = simulator.headers()
    kernels = [simulator.kernel_job(headers, path, race=race) for path in sources]
    return [*kernels, *simulator.jobs()]
