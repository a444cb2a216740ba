"""Builds the simulator: the same kernels, compiled by the C++ compiler to run on the CPU."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import configs
from build_tools import compile, cxx, ops, precompiled, settings, toolchain
from build_tools.settings import ROOT, BuildError

LIBRARY = "_simulator.so"
RACE_LIBRARY = "_simulator_race.so"
TESTS_HEADER = ROOT / "tests/kittens/precompiled.hpp"
# Shared memory is read as other types than it was written; only arch::fma is one instruction.
SIMULATOR_FLAGS = (
    "-g1",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-Wno-psabi",  # tensor maps are passed by value: kernels and their callers are one compiler's
    "-x",
    "c++",
)
# Of -Og the passes that take g++ a quarter of its time, and what runs no longer without them.
GCC_FAST_FLAGS = ("-fira-region=one", "-fno-tree-fre", "-fno-guess-branch-probability")


def build(package: Path = settings.PACKAGE, *, race: bool = True) -> None:
    """Builds `lib/_simulator.so` beside the kernels' library, which must have been built.

    Args:
        package: The folder that holds `lib`.
        race: Whether to build `lib/_simulator_race.so`, too, whose kernels tell the simulator of
            each access to memory.

    Raises:
        BuildError: CUDA's headers are not on this machine.
    """
    toolkit = headers()
    kernels = [
        path
        for kernel in configs.KERNELS
        for path in sorted(ROOT.glob(f"csrc/kernels/{kernel.name}/*.cu"))
    ]
    host = jobs()
    plain = [fast_kernel_job(toolkit, path) for path in kernels]
    racing = [fast_kernel_job(toolkit, path, race=True) for path in kernels] if race else []
    results = compile.run([*host, *plain, *racing], "Compiling for the simulator")
    first, second = len(host), len(host) + len(plain)
    libraries = {LIBRARY: library_job([*results[:first], *results[first:second]], package)}
    if race:
        objects = [*results[:first], *results[second:]]
        libraries[RACE_LIBRARY] = library_job(objects, package, "lib/_simulator_race")
    linked = compile.run(libraries.values(), "Linking the simulator")
    compile.print_times(results)
    for result, name in zip(linked, libraries, strict=True):
        compile.install(result.output, package / "lib" / name)


def sources() -> list[Path]:
    """Returns the C++ sources of the simulator itself."""
    return cxx.sources("csrc/sim", "csrc/sim/*")


def library_job(
    objects: list[compile.Result], package: Path, name: str = "lib/_simulator"
) -> compile.Job:
    """Returns the linking of the simulator, which calls the kernels' library of a package."""
    compiler = toolchain.find_compiler()
    return compile.Job(
        name=name,
        command=(
            *cxx.shared_library(f"{Path(name).name}.so"),
            "{inputs}",
            cxx.LIBRARY,
            "-lpthread",
            "-Wl,-rpath,$ORIGIN",
            "-Wl,--allow-shlib-undefined",  # CUDA's runtime: who loads this one has it
        ),
        tool=compiler.name,
        suffix=".so",
        inputs=(*(result.output for result in objects), package / "lib" / ops.KERNELS),
        depends=False,
    )


def headers() -> toolchain.Cuda:
    """Returns a toolkit whose headers the kernels can include; its version matters little.

    Raises:
        BuildError: There is none.
    """
    toolkit, reason = toolchain.find_cuda(None)
    if toolkit is None:
        raise BuildError(f"the simulator needs CUDA's headers; {reason}")
    return toolkit


def jobs() -> list[compile.Job]:
    """Returns the compilations of the simulator itself, which is stepped through in debuggers."""
    return [cxx.job(source, flags=("-g1",)) for source in sources()]


def kernel_job(toolkit: toolchain.Cuda, path: Path, *, race: bool = False) -> compile.Job:
    """Returns the compilation of a CUDA source by the C++ compiler, for race mode too or not."""
    source, compiler = path.relative_to(ROOT), toolchain.find_compiler()
    is_kernel = source.parts[:2] == ("csrc", "kernels")
    target = "simulator_race" if race else "simulator"
    return compile.Job(
        name=f"{source.with_suffix('')}.{target}",
        command=(
            compiler.path,
            *configs.CXX_FLAGS,
            "-Wno-unknown-pragmas",  # nvcc's #pragma unroll
            *SIMULATOR_FLAGS,
            f"-DKITTENS_TARGET={target}",
            *(_race_flags(compiler) if race else ()),
            *cxx.INCLUDES,
            *(() if is_kernel else ("-I", "tests/kittens")),
            "-isystem",
            str(toolkit.include),
            "-c",
            str(source),
            "-o",
            "{output}",
        ),
        tool=f"{compiler.name}, CUDA {toolkit.version}",
        kernel=f"{source.parent.name}/{source.stem} {target}" if is_kernel else "",
    )


def fast_kernel_job(toolkit: toolchain.Cuda, path: Path, *, race: bool = False) -> compile.Job:
    """Returns the compilation of a kernel as the libraries have it: optimized for debuggers.

    To optimize it takes the compiler twice as long, and it runs no faster: its time is that of the
    simulator, which each instruction calls, and which is optimized. (attention_sm90.cu: 41 s of a
    processor or 22, and its tests in the simulator 50.1 or 50.2.)
    """
    return _fast(kernel_job(toolkit, path, race=race))


def _race_flags(compiler: toolchain.Compiler) -> tuple[str, ...]:
    """Have the compiler call csrc/sim/race/hooks.cpp at each access, and nowhere else."""
    if "clang" in compiler.name:
        return ("-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=0")
    return ("-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0")


def build_test(path: str | Path, *, race: bool = False) -> Path:
    """Builds a test of the tile layer, `tests/kittens/**/test_*.cu`, for the simulator.

    Args:
        path: The source.
        race: Whether KITTENS_SIM=race is to be possible.

    Returns:
        The executable.
    """
    return build_tests([path], race=race)[0]


def test_jobs(paths: Iterable[str | Path], *, race: bool = False) -> list[compile.Job]:
    """Returns the compilations of tests, which run for a tenth of a second.

    To optimize them takes the compiler three times as long, to read their headers half as long as
    all the rest: they are optimized for debuggers, and begin with a precompiled header.
    """
    toolkit = headers()
    header = precompiled.header(_fast(kernel_job(toolkit, TESTS_HEADER, race=race)))
    jobs = [_fast(kernel_job(toolkit, Path(path).resolve(), race=race)) for path in paths]
    return [precompiled.begin_with(job, *header) for job in jobs]


def fast_flags() -> tuple[str, ...]:
    """Returns what replaces -O2 where the compiler takes longer than what it compiles."""
    return ("-Og", *(GCC_FAST_FLAGS if toolchain.find_compiler().name.startswith("g++") else ()))


def at_level(job: compile.Job, level: tuple[str, ...]) -> compile.Job:
    """Returns the job with other flags in place of -O2."""
    at = job.command.index("-O2")
    return dataclasses.replace(job, command=(*job.command[:at], *level, *job.command[at + 1 :]))


def _fast(job: compile.Job) -> compile.Job:
    return at_level(job, fast_flags())


def build_tests(paths: Iterable[str | Path], *, race: bool = False) -> list[Path]:
    """Builds tests of the tile layer, as many at a time as the machine can.

    Returns:
        The executables, in order.
    """
    return build_programs(test_jobs(paths, race=race))


def build_programs(programs: list[compile.Job], shared: Iterable[compile.Job] = ()) -> list[Path]:
    """Compiles programs for the simulator, each of one source, and links them with it.

    Args:
        programs: The compilation of each program's own source.
        shared: Those of sources that belong to each of the programs.

    Returns:
        The executables, in order.
    """
    host = [*cxx.host_jobs(), *jobs(), *shared]
    what = programs[0].name if len(programs) == 1 else "Tests of the tile layer for the simulator"
    objects = compile.run([*host, *programs], what)
    links = [
        cxx.link_job(one.job.name, [*objects[: len(host)], one]) for one in objects[len(host) :]
    ]
    return [result.output for result in compile.run(links, "Linking")]
