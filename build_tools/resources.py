"""What each kernel takes: registers, shared memory, and what must not be there.

Of the hot kernels a table is checked in, `tests/families/<family>/resources.md`, so that a change
of one shows what it costs; `python -m build_tools resources` regenerates them.
"""

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

import configs
from build_tools import compile, cuda, cxx, settings, simulator, toolchain
from build_tools.settings import ROOT, BuildError

TABLES = ROOT / "tests/families"
ARCHITECTURE = "sm_90a"
TITLE = "Compiling CUDA kernels"
HEADER = """# Registers and shared memory of the kernels

Of each hot kernel for {architecture}, compiled by nvcc {version}: one that names no element type
but bf16. (No kernel, hot or not, may spill or have a stack frame.) After a change,
`python -m build_tools resources` writes this file; tests/ptxas compares it wherever nvcc has the
same major and minor version.

Registers of a thread and named barriers are what ptxas says. Shared memory of a block, in bytes: of
kernel `k`, the size of its `k_shared`; a kernel without one takes as much as its launch asks for,
which depends on the sizes of the problem.
"""
OTHER_ELEMENTS = re.compile(r"\b(half|float|double|any_element)\b")
COLUMNS = ("kernel", "registers", "barriers", "shared memory")


@dataclass(frozen=True)
class Kernel:
    """One kernel, as ptxas compiled it."""

    name: str  # short, with its template arguments
    registers: int
    barriers: int
    static: int  # bytes of shared memory that ptxas knows of

    @property
    def hot(self) -> bool:
        """Whether it has a row: models run in bf16."""
        return not OTHER_ELEMENTS.search(self.name)

    def row(self, dynamic: int | None) -> str:
        """Returns its row of the table.

        Args:
            dynamic: The bytes of shared memory that its launch asks for; None if that varies.
        """
        if dynamic is None:
            shared = f"{self.static} + at launch" if self.static else "at launch"
        else:
            shared = str(self.static + dynamic)
        return f"| `{self.name}` | {self.registers} | {self.barriers} | {shared} |"


def reports(toolkit: toolchain.Cuda) -> dict[str, str]:
    """Compiles the selected kernels and returns what ptxas printed, by source and architecture."""
    results = compile.run(cuda.kernel_jobs(toolkit), TITLE)
    return {result.job.name: result.job.log_path.read_text() for result in results}


def kernels(report: str) -> list[Kernel]:
    """Returns the kernels that ptxas has compiled, by name."""
    found, name = [], ""
    for line in report.splitlines():
        entry = re.search(r"Compiling entry function '(\w+)'", line)
        name = entry[1] if entry else name
        used = re.search(r"Used (\d+) registers", line)
        if used and name:
            sizes = [re.search(rf"(\d+) {what}\b", line) for what in ("barriers", "bytes smem")]
            counts = [int(size[1]) if size else 0 for size in sizes]
            found.append(Kernel(short_name(name), int(used[1]), *counts))
            name = ""
    return sorted(found, key=lambda kernel: kernel.name)


def complaints(report: str) -> list[str]:
    """Returns the lines that a report must not have, each with its function.

    Those are stack frames, spills, and the notes C75xx: wgmma in series, waits injected for want of
    a fence, setmaxnreg without effect. ptxas calls these notes information, not warnings, so that
    -Werror passes them over.
    """
    found, function = [], "?"
    for line in report.splitlines():
        name = re.search(r"(?:Function properties for|Compiling entry function) '?(\w+)", line)
        function = name[1] if name else function
        sizes = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", line)
        note = re.search(r"\(C75\d\d\)", line)
        own = re.search(r"function '(\w+)'", line) if note else None
        if note or any(int(size) for size in sizes):
            found.append(f"{short_name(own[1] if own else function)}: {line.strip()}")
    return found


def short_name(symbol: str) -> str:
    """Returns a kernel's name and template arguments, without namespaces and parameters."""
    name = _demangle(symbol).removeprefix("void ")
    depth, end = 0, len(name)
    for i, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0 and not name.startswith("(anonymous", i):
            end = i
            break
    name = re.sub(r"(?:[A-Za-z_]\w*|\(anonymous namespace\))::", "", name[:end])
    name = re.sub(r"\(\w+\)(-?\d)", r"\1", name)  # (bool)1
    for theirs, ours in (("__nv_bfloat16", "bf16"), ("__half", "half")):
        name = name.replace(theirs, ours)
    return re.sub(r"> (?=>)", ">", name)


def sections(toolkit: toolchain.Cuda, texts: dict[str, str]) -> dict[str, list[str]]:
    """Returns the rows of the tables, by the heading that they stand under, which is a source."""
    found = {}
    for name, text in sorted(texts.items()):
        source, _, architecture = name.rpartition(".")
        if architecture == ARCHITECTURE:
            compiled = [kernel for kernel in kernels(text) if kernel.hot]
            sizes = dynamic_shared(toolkit, source, [kernel.name for kernel in compiled])
            found[source] = [kernel.row(sizes.get(kernel.name)) for kernel in compiled]
    return found


def dynamic_shared(toolkit: toolchain.Cuda, source: str, names: list[str]) -> dict[str, int]:
    """Returns the sizes of the kernels' `<kernel>_shared`, where they have one."""
    family = "".join(path.read_text() for path in (ROOT / source).parent.glob("*.cu*"))
    own = [name for name in names if re.search(rf"\bstruct {name.split('<')[0]}_shared\b", family)]
    sizes = {name: f"sizeof({shared_type(name)})" for name in own}
    return constants(toolkit, source, "shared", sizes)


def shared_type(name: str) -> str:
    """Returns the type of a kernel's shared memory, by the kernel's short name."""
    kernel, angle, rest = name.partition("<")
    return f"{kernel}_shared{angle}{rest}"


def constants(
    toolkit: toolchain.Cuda, source: str, what: str, expressions: dict[str, str]
) -> dict[str, int]:
    """Returns the values of expressions in what a kernel's source includes, by any names.

    The C++ compiler knows them: they are asked for as the lengths of arrays, and read from its
    assembly.

    Args:
        toolkit: Whose headers the source needs.
        source: A `.cu` file without its suffix, relative to the repository.
        what: What they are, as a part of the name of a file.
        expressions: Each a positive constant in the namespace of the family's kernels.
    """
    if not expressions:
        return {}
    # Not the source itself: to compile its launches takes a minute.
    text = (ROOT / source).with_suffix(".cu").read_text()
    namespace = f"thunderkittens::{Path(source).parent.name}_kernels"
    lines = [*re.findall(r'^#include ".*"$', text, re.MULTILINE), f"namespace {namespace} {{"]
    for i, expression in enumerate(expressions.values()):
        lines.append(f'extern "C" const char constant_{i}[{expression}] = {{}};')
    text = "\n".join([*lines, "}", ""])
    path = settings.build_dir() / "generated" / what / f"{Path(source).name}.cu"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
    compiler = toolchain.find_compiler()
    flags = (*configs.CXX_FLAGS, "-O0", *simulator.SIMULATOR_FLAGS, "-Wno-unknown-pragmas")
    includes = (*cxx.INCLUDES, "-isystem", str(toolkit.include))
    job = compile.Job(
        name=f"{source}.{what}",
        command=(
            *(compiler.path, *flags, "-Wno-invalid-offsetof"),
            *(*includes, "-S", str(path), "-o", "{output}"),
        ),
        tool=f"{compiler.name}, CUDA {toolkit.version}",
        suffix=".s",
    )
    (result,) = compile.run([job], f"Constants of {source}")
    sizes = dict(re.findall(r"\.size\s+constant_(\d+), (\d+)", result.output.read_text()))
    return {name: int(sizes[str(i)]) for i, name in enumerate(expressions)}


def read_table(text: str) -> tuple[str, dict[str, list[str]]]:
    """Returns the version of nvcc that a table names, and its rows by their heading."""
    version = re.search(r"compiled by nvcc ([\d.]+\d)", text)[1]
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    rows = {
        heading: re.findall(r"^\| `.*$", part, re.MULTILINE)
        for heading, part in zip(parts[1::2], parts[2::2], strict=True)
    }
    return version, rows


def family_of(source: str) -> str:
    """Returns the family of a source in csrc/kernels."""
    return Path(source).parent.name


def table_of(family: str) -> Path:
    """Returns where a family's table is."""
    return TABLES / family / "resources.md"


def write_tables() -> list[Path]:
    """Compiles the selected kernels and writes their families' tables."""
    toolkit, reason = cuda.toolkit()
    if toolkit is None:
        raise BuildError(reason)
    texts: dict[str, list[str]] = {}
    for name, rows in sections(toolkit, reports(toolkit)).items():
        first = [HEADER.format(architecture=ARCHITECTURE, version=toolkit.version)]
        lines = texts.setdefault(family_of(name), first)
        head = [f"| {' | '.join(COLUMNS)} |", "| --- | --: | --: | --: |"]
        lines += [f"## {name}\n", *head, *rows, ""]
    for family, lines in texts.items():
        table_of(family).write_text("\n".join(lines).rstrip() + "\n")
    return [table_of(family) for family in texts]


def _demangle(symbol: str) -> str:
    """Returns the C++ name of a symbol, by the C++ library that every compiler here links with."""
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    library.__cxa_demangle.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3]
    status = ctypes.c_int()
    text = library.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not text:
        return symbol
    name = ctypes.string_at(text).decode()
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free(text)
    return name
