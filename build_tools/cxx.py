"""What every build with the C++ compiler shares: flags, sources without torch, linking."""

from pathlib import Path

import configs
from build_tools import compile, fingerprint, toolchain
from build_tools.settings import ROOT

INCLUDES = ("-I", "csrc/include", "-I", "csrc")
# The C++ library that torch has loaded, by its full name. A compiler that comes without a
# libstdc++.so would link libstdc++.a instead, and formatting a number with the second copy of the
# library in one process crashes.
LIBRARY = "-l:libstdc++.so.6"


def sources(*folders: str) -> list[Path]:
    """Returns the C++ sources of folders, which may be patterns, relative to the repository."""
    paths = [path for folder in folders for path in sorted(ROOT.glob(f"{folder}/*.cpp"))]
    return [path.relative_to(ROOT) for path in paths]


def job(source: Path, tool: str = "", flags: tuple[str, ...] = ()) -> compile.Job:
    """Returns the compilation of a C++ source.

    Args:
        source: Relative to the repository.
        tool: What the output depends on beside the compiler, such as torch's version.
        flags: More of them.
    """
    compiler = toolchain.find_compiler()
    is_kernel = source.parts[1] == "kernels"
    return compile.Job(
        name=str(source.with_suffix("")),
        command=(
            compiler.path,
            *configs.CXX_FLAGS,
            *INCLUDES,
            *flags,
            *("-c", str(source), "-o", "{output}"),
        ),
        tool=f"{compiler.name}, {tool}" if tool else compiler.name,
        kernel=f"{source.parts[2]} (host)" if is_kernel else "",
    )


def host_jobs() -> list[compile.Job]:
    """Returns the compilations of csrc/host, which every program with a kernel needs."""
    return [host_job(source) for source in sources("csrc/host")]


def host_job(source: Path) -> compile.Job:
    """Returns the compilation of a source of the kernels' library that is not nvcc's."""
    return job(source, flags=fingerprint.flags() if source == fingerprint.NEEDED_BY else ())


def shared_library(name: str) -> tuple[str, ...]:
    """Returns the start of a command that links a shared library with nothing left undefined."""
    return (
        toolchain.find_compiler().path,
        "-shared",
        f"-Wl,-soname,{name}",
        "-Wl,--no-undefined",
        "-Wl,--as-needed",
        "-o",
        "{output}",
    )


def link_job(
    name: str, objects: list[compile.Result], libraries: tuple[str, ...] = ()
) -> compile.Job:
    """Returns the linking of a program; libraries are looked for where they are now."""
    compiler = toolchain.find_compiler()
    folders = tuple(f"-Wl,-rpath,{Path(library).parent}" for library in libraries)
    return compile.Job(
        name=name,
        command=(
            *(compiler.path, "-o", "{output}", "{inputs}", LIBRARY),
            *libraries,
            *folders,
            "-lpthread",
        ),
        tool=compiler.name,
        suffix=".exe",
        inputs=tuple(result.output for result in objects),
        depends=False,
    )
