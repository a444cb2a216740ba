"""Finds the C++ compiler, PyTorch and nvcc to build with, and says in one sentence what is wrong.

nvcc comes from PATH where that one is new enough and of PyTorch's CUDA major version, else from
the Python packages `nvidia-cuda-nvcc` and so on, installed beside PyTorch.
"""

import functools
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from build_tools.settings import MINIMUM_CUDA, MINIMUM_TORCH, BuildError

MINIMUM_GCC = 10
MINIMUM_CLANG = 12
interpreter = sys.executable  # whose packages count; the build backend may find another


def pip() -> str:
    """Returns the command that installs a package where it counts, by pip or else by uv."""
    python = shlex.quote(interpreter)
    code = "import importlib.util as u, sys; sys.exit(u.find_spec('pip') is None)"
    try:
        has_pip = subprocess.run([interpreter, "-I", "-c", code], timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        has_pip = True
    return f"{python} -m pip install" if has_pip else f"uv pip install --python {python}"


@dataclass(frozen=True)
class Compiler:
    """A C++20 compiler."""

    path: str
    name: str  # with the version, as in "g++ 12.2.0"


@dataclass(frozen=True)
class Torch:
    """The PyTorch of this interpreter; found without importing it."""

    root: Path
    version: str  # as in "2.11.0+cu130"
    cuda: str | None  # as in "13.0"; None for a build without CUDA

    @property
    def minor(self) -> str:
        """The part of the version that its C++ interface depends on, as in "2.11"."""
        return dotted(version_tuple(self.version)[:2])

    @property
    def include_flags(self) -> tuple[str, ...]:
        """Flags to include its headers, whose warnings are not ours."""
        include = self.root / "include"
        api = include / "torch" / "csrc" / "api" / "include"
        return ("-isystem", str(include), "-isystem", str(api))


@dataclass(frozen=True)
class Cuda:
    """A CUDA toolkit: the compiler, its headers, its runtime library."""

    nvcc: str
    version: str  # as in "13.0.88"
    include: Path
    cudart: Path
    origin: str  # "PATH" or "Python package"


def version_tuple(text: str) -> tuple[int, ...]:
    """Returns the leading numbers of a version: (2, 11, 0) for "2.11.0+cu130"."""
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*", text)[0].split("."))


def dotted(version: tuple[int, ...]) -> str:
    """Returns "12.3" for (12, 3)."""
    return ".".join(map(str, version))


@functools.cache
def find_compiler() -> Compiler:
    """Returns the first compiler that is new enough: $CXX, then those on PATH.

    Raises:
        BuildError: There is none.
    """
    names = [f"g++-{major}" for major in range(15, MINIMUM_GCC - 1, -1)]
    names = ["g++", "c++", "clang++", *names]
    if os.environ.get("CXX"):
        names = [os.environ["CXX"]]
    found = []
    for name in names:
        path = shutil.which(name)
        compiler = path and _identify(path)
        if not compiler:
            continue
        found.append(compiler.name)
        minimum = MINIMUM_GCC if compiler.name.startswith("g++") else MINIMUM_CLANG
        if version_tuple(compiler.name.split()[1])[0] >= minimum:
            return compiler
    what = f"{', '.join(dict.fromkeys(found))}" if found else "none"
    if os.environ.get("CXX"):
        raise BuildError(
            f"CXX={os.environ['CXX']!r}: found {what} there, needed the path of one program, g++ ≥ "
            f"{MINIMUM_GCC} or clang++ ≥ {MINIMUM_CLANG}, with no words before or after; set it "
            "so, or `unset CXX` to use what is on PATH"
        )
    raise BuildError(
        f"C++ compiler: found {what}, needed one for C++20 (g++ ≥ {MINIMUM_GCC} or "
        f"clang++ ≥ {MINIMUM_CLANG}); install one with `apt-get install g++`, "
        f"or set CXX to its path"
    )


@functools.cache
def find_torch() -> Torch:
    """Returns the PyTorch that this interpreter imports.

    Raises:
        BuildError: There is none, or it is too old.
    """
    minimum = dotted(MINIMUM_TORCH)
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise BuildError(
            f"PyTorch: found none beside {interpreter}, needed ≥ {minimum}; "
            f"install it with `{pip()} 'torch>={minimum}'`"
        )
    root = Path(spec.origin).parent
    text = (root / "version.py").read_text()
    version = re.search(r"__version__ = '([^']+)'", text)[1]
    cuda = re.search(r"^cuda: .*?= '([^']+)'", text, re.MULTILINE)
    if version_tuple(version)[:2] < MINIMUM_TORCH:
        raise BuildError(
            f"PyTorch: found {version} in {root}, needed ≥ {minimum}; "
            f"install it with `{pip()} 'torch>={minimum}'`"
        )
    return Torch(root, version, cuda[1] if cuda else None)


@functools.cache
def find_cuda(major: int | None = None) -> tuple[Cuda | None, str]:
    """Looks for a usable CUDA toolkit.

    Args:
        major: The major version that it must have (PyTorch's), or None for any.

    Returns:
        The toolkit and "", or None and why there is none, in one sentence with the remedy.
    """
    needed = f"≥ {dotted(MINIMUM_CUDA)}"
    if major is not None:
        needed += f" of major version {major} (as PyTorch's)"
    refused = []
    for nvcc, origin in _nvcc_candidates():
        cuda = _inspect(nvcc, origin)
        if cuda is None:
            refused.append(f"{nvcc} (no complete toolkit)")
            continue
        version = version_tuple(cuda.version)
        if version[:2] >= MINIMUM_CUDA and major in (None, version[0]):
            return cuda, ""
        refused.append(f"CUDA {cuda.version} ({nvcc})")
    what = ", ".join(refused) or "none"
    return None, f"nvcc: found {what}, needed {needed}; {_nvcc_remedy()}"


def nvcc_requirement() -> str | None:
    """Returns what to install for nvcc, in the version that the installed PyTorch pins.

    None where PyTorch does not use CUDA's Python packages.
    """
    try:
        requirements = importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for requirement in requirements:
        pinned = re.match(r"cuda-toolkit\[.*?\]\s*(==[\d.]+)", requirement)
        if pinned:
            return f"cuda-toolkit[nvcc,crt,nvvm,cudart,cccl]{pinned[1]}"
    return None


def find_cuobjdump(cuda: Cuda) -> str:
    """Returns a cuobjdump, which shows machine code by means of the nvdisasm that it needs.

    The toolkit's own, else one on PATH, of CUDA's Python packages, or of PyTorch's triton.

    Raises:
        BuildError: There is none.
    """
    triton = importlib.util.find_spec("triton")
    folders = [
        Path(cuda.nvcc).parent,
        Path(os.path.realpath(cuda.nvcc)).parent,
        *(Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder),
        *(path for folder in sys.path for path in Path(folder or ".").glob("nvidia/cu1*/bin")),
        *([Path(triton.origin).parent / "backends/nvidia/bin"] if triton and triton.origin else []),
    ]
    for folder in folders:
        tool = shutil.which("cuobjdump", path=str(folder))
        if tool and (shutil.which("nvdisasm", path=str(folder)) or shutil.which("nvdisasm")):
            return tool
    raise BuildError(
        f"cuobjdump with nvdisasm: found none beside {cuda.nvcc}, on PATH, among Python's packages "
        "or in triton, needed to read machine code; install it with "
        f"`{pip()} nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`"
    )


def find_nvdisasm(cuda: Cuda) -> str:
    """Returns the nvdisasm of the cuobjdump that `find_cuobjdump` finds.

    Raises:
        BuildError: There is none.
    """
    folder = Path(find_cuobjdump(cuda)).parent
    return shutil.which("nvdisasm", path=str(folder)) or "nvdisasm"  # the one on PATH


def describe(cuda: Cuda | None, reason: str) -> str:
    """Returns one line that says what is built with."""
    torch, compiler = find_torch(), find_compiler()
    short = reason.split(";")[0].split(" (as ")[0]
    without = "no nvcc: " if short.startswith("nvcc: ") else ""
    nvcc = f"{without}CUDA kernels left out ({short.removeprefix('nvcc: ')})"
    if cuda:
        nvcc = f"nvcc {cuda.version} from {cuda.origin} ({cuda.nvcc})"
    return f"Building with PyTorch {torch.version}, {compiler.name} ({compiler.path}), {nvcc}"


def _identify(path: str) -> Compiler | None:
    """Returns the compiler's kind and version, by its own predefined macros."""
    command = [path, "-dM", "-E", "-x", "c++", "/dev/null"]
    text = _output(command)
    macros = dict(re.findall(r"#define (\w+) (.+)", text))
    for name, prefix in (("clang++", "__clang"), ("g++", "__GNUC")):
        parts = (
            ("major", "minor", "patchlevel") if name == "clang++" else ("", "MINOR", "PATCHLEVEL")
        )
        keys = [f"{prefix}_{part}__" if part else f"{prefix}__" for part in parts]
        if keys[0] in macros:
            return Compiler(path, f"{name} {'.'.join(macros.get(key, '0') for key in keys)}")
    return None


def _nvcc_candidates() -> list[tuple[str, str]]:
    folders = os.environ.get("PATH", "").split(os.pathsep)
    paths = [shutil.which("nvcc", path=folder) for folder in folders if folder]
    candidates = [(path, "PATH") for path in dict.fromkeys(paths) if path]
    for folder in sys.path:
        for path in sorted(Path(folder or ".").glob("nvidia/cu1*/bin/nvcc"), reverse=True):
            candidates.append((str(path), "Python package"))
    return candidates


def _inspect(nvcc: str, origin: str) -> Cuda | None:
    """Returns the toolkit that an nvcc belongs to, or None if it lacks headers or runtime."""
    version = re.search(r"\bV(\d+\.\d+\.\d+)", _output([nvcc, "--version"]))
    top = re.search(r"TOP=(.+)", _output([nvcc, "--dryrun", "-x", "cu", "/dev/null"]))
    if not version or not top:
        return None
    root = Path(os.path.normpath(top[1].strip()))
    major = version[1].split(".")[0]
    headers = [*root.glob("include"), *root.glob("targets/*-linux/include")]
    includes = [
        path for path in headers if (path / "cuda_runtime.h").is_file() and (path / "crt").is_dir()
    ]
    folders = [*root.glob("lib64"), *root.glob("lib"), *root.glob("targets/*-linux/lib")]
    libraries = [
        path for folder in folders for path in sorted(folder.glob(f"libcudart.so.{major}*"))
    ]
    if not includes or not libraries:
        return None
    return Cuda(nvcc, version[1], includes[0], libraries[0], origin)


def _nvcc_remedy() -> str:
    requirement = nvcc_requirement()
    if requirement:
        return f"install it with `{pip()} '{requirement}'`, or build without: THUNDERKITTENS_CUDA=0"
    return "put one on PATH, or build without: THUNDERKITTENS_CUDA=0"


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
