"""Builds what the package loads: `lib/libthunderkittens.so` and the Python module `_C`."""

import sysconfig
from collections.abc import Iterable
from pathlib import Path

import configs
from build_tools import build_info, compile, cuda, settings, toolchain
from build_tools.settings import ROOT, BuildError

INCLUDES = ("-I", "csrc/include", "-I", "csrc")
MODULE = "csrc/binding/module.cpp"
LIBRARY = "libthunderkittens.so"
# The C++ library that torch has loaded, by its full name. A compiler that comes without a
# libstdc++.so would link libstdc++.a instead, and formatting a number with the second copy of the
# library in one process crashes.
CXX_LIBRARY = "-l:libstdc++.so.6"


def build(
    package: Path = settings.PACKAGE,
    kernels: Iterable[compile.Job] | None = None,
    name: str = "lib",
) -> None:
    """Builds the ops library and the Python module, and puts them into a package folder.

    Args:
        package: The folder `thunderkittens` that is to hold them.
        kernels: The compilations of CUDA kernels, where there is an nvcc; by default of those that
            are selected.
        name: Of the folder where what is linked of them is kept.
    """
    toolkit, reason = cuda.toolkit()
    print(toolchain.describe(toolkit, reason), flush=True)
    header = build_info.write(toolkit)
    jobs = [compile_job(source, header) for source in sources()]
    if toolkit:
        chosen = cuda.kernel_jobs(toolkit) if kernels is None else kernels
        jobs += [*chosen, cuda.device_job(toolkit)]
    module = module_job(header)
    # The slowest first: kernels, then files that include ATen.
    results = compile.run([*reversed(jobs), module], "Compiling")
    objects = tuple(result.output for result in results if result.job is not module)
    library = _link_library(objects, toolkit, name)
    extension = _link_module(module.output, library, name)
    compile.run([library], "Linking the ops")
    compile.run([extension], "Linking the Python module")
    compile.print_times(results)
    compile.install(library.output, package / "lib" / LIBRARY)
    compile.install(extension.output, package / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}")


def sources() -> list[Path]:
    """Returns the C++ sources of the ops library, relative to the repository."""
    folders = ("csrc/host", "csrc/binding", "csrc/kernels/*")
    paths = [path for folder in folders for path in sorted(ROOT.glob(f"{folder}/*.cpp"))]
    return [path.relative_to(ROOT) for path in paths if path != ROOT / MODULE]


def compile_job(source: Path, header: Path | None = None) -> compile.Job:
    """Returns the compilation of one C++ source of the ops library.

    Args:
        source: Relative to the repository.
        header: The generated header, in a folder to include from, which one source reads.
    """
    compiler, torch = toolchain.find_compiler(), toolchain.find_torch()
    free = source.parts[1] == "host"  # no torch there, so no other object for another torch
    generated = ("-I", str(header.parent)) if header and source.name == "build_info.cpp" else ()
    return compile.Job(
        name=str(source.with_suffix("")),
        command=(
            compiler.path,
            *configs.CXX_FLAGS,
            *INCLUDES,
            *generated,
            *(() if free else torch.include_flags),
            "-c",
            str(source),
            "-o",
            "{output}",
        ),
        tool=compiler.name if free else f"{compiler.name}, torch {torch.version}",
        kernel=str(source.relative_to("csrc/kernels").with_suffix("")) + " (host)"
        if source.parts[1] == "kernels"
        else "",
    )


def module_job(header: Path) -> compile.Job:
    """Returns the compilation of the Python module: the one object that Python's ABI is in."""
    job = compile_job(Path(MODULE), header)
    include = Path(sysconfig.get_paths()["include"])
    if not (include / "Python.h").is_file():
        raise BuildError(
            f"Python's headers: found none in {include}, needed Python.h; "
            f"install them with `apt-get install python3-dev`"
        )
    python = ("-isystem", str(include))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return compile.Job(
        name=f"{job.name}{suffix.removesuffix('.so')}",
        command=(*job.command[:1], *python, *job.command[1:]),
        tool=job.tool,
    )


def _link_library(
    objects: tuple[Path, ...], toolkit: toolchain.Cuda | None, name: str
) -> compile.Job:
    compiler, torch = toolchain.find_compiler(), toolchain.find_torch()
    # The runtime by its full path: the Python packages have no libcudart.so to find with -l.
    runtime = (str(toolkit.cudart),) if toolkit else ()
    return compile.Job(
        name=f"{name}/libthunderkittens",
        command=(
            *shared_library(compiler, LIBRARY),
            "{inputs}",
            CXX_LIBRARY,
            f"-L{torch.root / 'lib'}",
            "-lc10",
            "-ltorch_cpu",
            *runtime,
            f"-Wl,-rpath-link,{torch.root / 'lib'}",
        ),
        tool=f"{compiler.name}, torch {torch.version}",
        suffix=".so",
        inputs=objects,
        depends=False,
    )


def _link_module(module: Path, library: compile.Job, name: str) -> compile.Job:
    compiler, torch = toolchain.find_compiler(), toolchain.find_torch()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return compile.Job(
        name=f"{name}/_C{suffix.removesuffix('.so')}",
        command=(
            compiler.path,
            "-shared",
            "-o",
            "{output}",
            "{inputs}",
            CXX_LIBRARY,
            "-Wl,-rpath,$ORIGIN/lib",
            f"-Wl,-rpath-link,{torch.root / 'lib'}",
        ),
        tool=f"{compiler.name}, torch {torch.version}",
        suffix=".so",
        inputs=(module, library.output),
        depends=False,
    )


def shared_library(compiler: toolchain.Compiler, name: str) -> tuple[str, ...]:
    """Returns the start of a command that links a shared library with nothing left undefined."""
    return (
        compiler.path,
        "-shared",
        f"-Wl,-soname,{name}",
        "-Wl,--no-undefined",
        "-Wl,--as-needed",
        "-o",
        "{output}",
    )
