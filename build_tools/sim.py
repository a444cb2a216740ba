"""`make sim`: one case of a kernel in the simulator, or under gdb."""

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import configs
from build_tools import compile, environment, ops, settings, simulator
from build_tools.settings import ROOT, BuildError

# Kernels that a debugger can step through, every variable in its place.
DEBUG_FLAGS = ("-O0", "-g")


def run(kernel: str, arguments: list[str]) -> int:
    """Builds, and runs tests/tools/simulate.py.

    Args:
        kernel: A family of configs.py, or an op.
        arguments: For the case. `--gdb PLACE` stops in gdb where its command `break PLACE` says.

    Returns:
        The exit status.
    """
    ops.build()
    simulator.build()
    place, arguments = take_option("--gdb", arguments)
    command = [sys.executable, "-m", "tests.tools.simulate", kernel, *arguments]
    if place is not None:
        command += ["--threads", "1", "--library", str(build_debug_library(kernel))]
        command = [*debugger(place), *command]
    return subprocess.run(command, cwd=ROOT, env=environment.variables()).returncode


def take_option(name: str, arguments: list[str]) -> tuple[str | None, list[str]]:
    """Returns the value of an option, None if it is not there, and the other arguments."""
    if name not in arguments:
        return None, arguments
    at = arguments.index(name)
    if at + 1 == len(arguments):
        raise BuildError(
            f"{name} needs a value, such as a place to stop: attention_consumer.cuh:211"
        )
    return arguments[at + 1], arguments[:at] + arguments[at + 2 :]


def debugger(place: str, answers: tuple[str, ...] = ()) -> list[str]:
    """Returns the start of a command line that runs a program until a place of its kernel.

    Args:
        place: What gdb's `break` takes. It can be looked up only once the simulator is loaded; of
            all the other libraries no symbols are read, which takes minutes.
        answers: Commands of gdb to run there before it ends; without any, it asks for them.
    """
    if shutil.which("gdb") is None:
        raise BuildError("gdb: found none on PATH; install it with `apt-get install gdb`")
    settings = ("auto-solib-add off", "debuginfod enabled off", "confirm off")
    commands = (
        "catch load _simulator",
        "run",
        "delete 1",
        "sharedlibrary libc.so",  # knows where a thread's variables are
        "sharedlibrary _simulator",
        f"break {place}",
        "continue",
        *answers,
    )
    first = [word for setting in settings for word in ("-iex", f"set {setting}")]
    then = [word for command in commands for word in ("-ex", command)]
    return ["gdb", "-q", *(["-batch"] if answers else []), *first, *then, "--args"]


def debug_job(job: compile.Job) -> compile.Job:
    """Returns the compilation of a kernel for the simulator, for a debugger."""
    return dataclasses.replace(
        job, name=f"{job.name}.debug", command=(*job.command, *DEBUG_FLAGS), kernel=""
    )


def build_debug_library(kernel: str) -> Path:
    """Builds the simulator with one family's kernels for a debugger, apart from the package.

    Returns:
        The library.
    """
    toolkit = simulator.headers()
    families = [k.name for k in configs.KERNELS if kernel in (k.name, *k.ops)]
    paths = [p for name in families for p in sorted(ROOT.glob(f"csrc/kernels/{name}/*.cu"))]
    if not paths:
        raise BuildError(f"KERNEL: no family or op of configs.py is named {kernel!r}")
    jobs = [*simulator.jobs()]
    jobs += [debug_job(simulator.kernel_job(toolkit, path)) for path in paths]
    objects = compile.run(jobs, "Compiling for the debugger")
    job = simulator.library_job(objects, settings.PACKAGE, f"lib/_simulator_debug_{families[0]}")
    return compile.run([job], "Linking the simulator")[0].output
