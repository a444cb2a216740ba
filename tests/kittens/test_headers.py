"""Every public header compiles alone."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from build_tools import cxx, fingerprint, simulator, toolchain
from build_tools.settings import ROOT, BuildError
from tests.tools.ahead import called_ahead

INCLUDE = ROOT / "csrc/include"
# The twins behind the seam are included through their contract, arch/<topic>.cuh, alone.
BEHIND_THE_SEAM = {"ptx", "sim", "cuda"}


def public_headers() -> list[str]:
    paths = (p for p in INCLUDE.rglob("*") if p.suffix in {".h", ".cuh", ".hpp"})
    names = (p.relative_to(INCLUDE) for p in paths)
    return sorted(str(name) for name in names if not BEHIND_THE_SEAM & set(name.parts))


@pytest.fixture(scope="module")
def command() -> list[str]:
    try:
        toolkit = simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    compiler = toolchain.find_compiler().path
    flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    defines = ["-DKITTENS_TARGET=simulator", "-isystem", str(toolkit.include)]
    return [compiler, *flags, *cxx.INCLUDES, *fingerprint.flags(), *defines, "-x", "c++"]


def compiles(command: list[str], source: Path, text: str) -> None:
    source.write_text(text)
    done = subprocess.run([*command, str(source)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def compile_alone(request, command: list[str], tmp_path_factory) -> Iterator[Callable[[str], None]]:
    """Compiles a header by itself, twice in one source."""
    folder = tmp_path_factory.mktemp("alone")

    def alone(header: str) -> None:
        source = folder / f"{header.replace('/', '.')}.cpp"
        compiles(command, source, f"#include <{header}>\n#include <{header}>\n")

    with called_ahead(request, alone, "header") as ahead:
        yield ahead


@pytest.mark.parametrize("header", public_headers())
def test_header_compiles_alone(header: str, compile_alone: Callable[[str], None]):
    compile_alone(header)


@pytest.mark.parametrize("before", ["", "static ", "extern "])
def test_static_shared_memory_is_refused_with_our_sentence(before: str, command, tmp_path: Path):
    source = tmp_path / "shared.cu"
    body = f"{{ {before}__shared__ float tile[4]; (void)tile; }}"
    source.write_text(f"#include <kittens.cuh>\n__global__ void kernel() {body}\n")
    done = subprocess.run([*command, str(source)], cwd=ROOT, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(errors) == 1 and "no __shared__: use arch::dynamic_shared()" in errors[0], errors


def test_without_the_simulator_a_cpp_compiler_gets_our_sentence(command, tmp_path: Path):
    """As from an installed package: `-I include_dir()` and no nvcc."""
    source = tmp_path / "plain.cpp"
    source.write_text("#include <kittens.cuh>\n")
    words = [command[0], "-std=c++20", "-fsyntax-only", "-I", str(INCLUDE), str(source)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "kittens: compile with nvcc" in done.stderr
