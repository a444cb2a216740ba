"""What the compiler says of functions that it must refuse, for the tests of its sentences."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from build_tools import cxx, simulator, toolchain
from build_tools.settings import ROOT, BuildError


def errors_of(folder: Path, functions: Iterable[str]) -> list[str]:
    """Compiles functions as one file with all of kittens, and returns its errors, a line each."""
    try:
        toolkit = simulator.headers()
    except BuildError as reason:
        pytest.skip(str(reason))
    source = folder / "mistakes.cpp"
    source.write_text("\n".join(["#include <kittens.cuh>", "using namespace kittens;", *functions]))
    words = [toolchain.find_compiler().path, "-std=c++20", "-fsyntax-only", "-Wno-unknown-pragmas"]
    words += [*cxx.INCLUDES, "-DKITTENS_TARGET=simulator", "-isystem", str(toolkit.include)]
    words += ["-fmax-errors=0", str(source)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    return [line for line in done.stderr.splitlines() if "error: " in line]
