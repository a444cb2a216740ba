"""`make cpp`: the demo without Python and torch, on the GPU that is there or in the simulator."""

import subprocess
from pathlib import Path

from build_tools import (
    compile,
    cuda,
    cxx,
    environment,
    fingerprint,
    ops,
    settings,
    simulator,
    toolchain,
)
from build_tools.settings import ROOT

SOURCE = Path("demos/cpp/kernels.cpp")


def run(arguments: list[str]) -> int:
    """Builds and runs it; returns the exit status.

    Args:
        arguments: `--simulator` runs the kernels on the CPU where a GPU is there, too.
    """
    simulated = "--simulator" in arguments or not environment.has_driver()
    program = build(simulated)
    return subprocess.run([program, *(a for a in arguments if a != "--simulator")]).returncode


def build(simulated: bool, package: Path = settings.PACKAGE) -> Path:
    """Builds the kernels' library, for the CPU the simulator too, and the program.

    What is there of the simulator's libraries is used as it is.

    Returns:
        The program; it finds the libraries where they are.
    """
    return build_program(SOURCE, build_libraries(simulated, package), package)


def build_libraries(simulated: bool, package: Path) -> toolchain.Cuda | None:
    """Builds what a program without torch links: the kernels' library, and the simulator's.

    Returns:
        The toolkit to compile the program with; None for the simulator, and where there is none.
    """
    toolkit = None if simulated else cuda.toolkit()[0]
    if not (simulated and (package / "lib" / ops.KERNELS).is_file()):
        ops.build_kernels(package, toolkit)
    if simulated and not (package / "lib" / simulator.LIBRARY).is_file():
        simulator.build(package, race=False)
    return toolkit


def build_program(source: Path, toolkit: toolchain.Cuda | None, package: Path) -> Path:
    """Compiles and links one source.

    Args:
        source: Relative to the repository.
        toolkit: For a program that runs on a GPU; None: the simulator runs its kernels.
        package: The folder whose `lib` holds the libraries.

    Returns:
        The program.
    """
    other = toolkit.cudart if toolkit else package / "lib" / simulator.LIBRARY
    with_cuda = ("-DWITH_CUDA", "-isystem", str(toolkit.include)) if toolkit else ()
    job = cxx.job(source, flags=("-I", str(SOURCE.parent), *fingerprint.flags(), *with_cuda))
    compiled = compile.run([job], "Compiling the program")
    libraries = (str(package / "lib" / ops.KERNELS), str(other))
    # A launcher enters itself when its library is loaded: nobody calls the simulator by name.
    link = cxx.link_job(job.name, compiled, ("-Wl,--no-as-needed", *libraries))
    return ROOT / compile.run([link], "Linking the program")[0].output
