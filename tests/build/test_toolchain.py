"""A tool that is missing or too old ends in one sentence: found, needed, what fixes it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from build_tools import cuda, toolchain
from build_tools.settings import ROOT, BuildError

FINDERS = (toolchain.find_compiler, toolchain.find_torch, toolchain.find_cuda)


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("THUNDERKITTENS_CUDA", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # it would be found there first
    for finder in FINDERS:
        finder.cache_clear()
    yield
    for finder in FINDERS:
        finder.cache_clear()


@pytest.fixture
def tools(tmp_path, monkeypatch) -> Path:
    """An empty folder that is all of PATH, on a machine without CUDA's Python packages."""
    monkeypatch.setenv("PATH", str(tmp_path))
    paths = [path for path in sys.path if not (Path(path) / "nvidia").is_dir()]
    monkeypatch.setattr(sys, "path", paths)
    return tmp_path


def write_tool(folder: Path, name: str, output: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{output}\nEND\n")
    path.chmod(0o755)
    return path


def write_toolkit(folder: Path, version: str, complete: bool = True) -> None:
    """A toolkit in `folder`, with its nvcc on PATH."""
    major = version.split(".")[0]
    for path in ("include/crt/host.h", "include/cuda_runtime.h", f"lib64/libcudart.so.{major}"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if complete:
            (folder / path).touch()
    write_tool(folder, "nvcc", f"#$ TOP={folder}\nCuda compilation tools, V{version}")


def write_torch(folder: Path, version: str, cuda: str | None = "13.0") -> None:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").touch()
    text = f"__version__ = '{version}'\ncuda: Optional[str] = {cuda!r}\n"
    (folder / "torch" / "version.py").write_text(text)


def test_no_compiler(tools):
    with pytest.raises(BuildError, match=r"found none, needed one for C\+\+20 .* `apt-get install"):
        toolchain.find_compiler()


def test_old_compiler(tools):
    macros = "#define __GNUC__ 8\n#define __GNUC_MINOR__ 3\n#define __GNUC_PATCHLEVEL__ 0"
    write_tool(tools, "g++", macros)
    with pytest.raises(BuildError, match=r"found g\+\+ 8.3.0, needed"):
        toolchain.find_compiler()
    write_tool(tools, "g++-11", macros.replace("8", "11"))
    assert toolchain.find_compiler().name == "g++ 11.3.0"


def test_clang_is_not_taken_for_gcc(tools):
    clang = "\n".join(f"#define __clang_{name}__ 16" for name in ("major", "minor", "patchlevel"))
    write_tool(tools, "c++", f"#define __GNUC__ 4\n{clang}")
    assert toolchain.find_compiler().name == "clang++ 16.16.16"


def test_named_compiler_is_taken(tools, monkeypatch):
    macros = "#define __GNUC__ 13\n#define __GNUC_MINOR__ 2\n#define __GNUC_PATCHLEVEL__ 0"
    monkeypatch.setenv("CXX", str(write_tool(tools, "my-compiler", macros)))
    assert toolchain.find_compiler().name == "g++ 13.2.0"


@pytest.mark.parametrize("words", ["ccache g++", "nothing-like-it"])
def test_named_compiler_must_be_one_program(tools, monkeypatch, words):
    monkeypatch.setenv("CXX", words)
    with pytest.raises(BuildError, match=rf"CXX='{re.escape(words)}': found none there, needed"):
        toolchain.find_compiler()


def test_what_is_built_with_is_one_short_line(tools, monkeypatch):
    write_torch(tools, "2.11.0+cu130")
    monkeypatch.setattr(sys, "path", [str(tools)])
    macros = "#define __GNUC__ 13\n#define __GNUC_MINOR__ 2\n#define __GNUC_PATCHLEVEL__ 0"
    write_tool(tools, "g++", macros)
    line = toolchain.describe(*cuda.toolkit())
    assert line.endswith(
        ", no nvcc: CUDA kernels left out (found none, needed ≥ 12.3 of major version 13)"
    )
    monkeypatch.setenv("THUNDERKITTENS_CUDA", "0")
    line = toolchain.describe(*cuda.toolkit())
    assert line.endswith(", CUDA kernels left out (THUNDERKITTENS_CUDA=0)")


def test_no_torch(tools, monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(
        BuildError, match=r"PyTorch: found none .* needed ≥ 2.11; .* install 'torch>=2.11'`"
    ):
        toolchain.find_torch()


def test_old_torch(tools, monkeypatch):
    write_torch(tools, "2.4.1+cu121")
    monkeypatch.setattr(sys, "path", [str(tools)])
    with pytest.raises(BuildError, match=r"PyTorch: found 2.4.1\+cu121 .* needed ≥ 2.11; .*`"):
        toolchain.find_torch()


def test_no_nvcc(tools):
    found, reason = toolchain.find_cuda(13)
    assert found is None
    assert reason.startswith("nvcc: found none, needed ≥ 12.3 of major version 13")


@pytest.mark.parametrize("version", ["11.8.89", "12.8.61"])
def test_unusable_nvcc_is_an_error(tools, monkeypatch, version):
    write_toolkit(tools, version)
    write_torch(tools, "2.11.0+cu130")
    monkeypatch.setattr(sys, "path", [str(tools)])
    with pytest.raises(BuildError, match=f"nvcc: found CUDA {version} .*, needed ≥ 12.3 of major"):
        cuda.toolkit()


def test_incomplete_toolkit(tools):
    write_toolkit(tools, "13.0.88", complete=False)
    assert "(no complete toolkit)" in toolchain.find_cuda(13)[1]


def test_nvcc_on_path_goes_first(tools, monkeypatch):
    packaged = tools / "packages" / "nvidia" / "cu13"
    write_toolkit(tools, "13.0.88")
    write_toolkit(packaged, "13.1.20")
    (packaged / "bin").mkdir()
    (packaged / "nvcc").rename(packaged / "bin" / "nvcc")
    monkeypatch.setattr(sys, "path", [str(tools / "packages")])
    assert toolchain.find_cuda(13)[0].version == "13.0.88"
    toolchain.find_cuda.cache_clear()
    write_toolkit(tools, "12.1.66")
    found, _ = toolchain.find_cuda(13)
    assert (found.version, found.origin) == ("13.1.20", "Python package")


def test_no_disassembler(tools, monkeypatch):
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)  # of triton
    write_toolkit(tools, "13.0.88")
    cuda, _ = toolchain.find_cuda()
    write_tool(tools, "cuobjdump", "")  # which shows nothing without nvdisasm
    with pytest.raises(BuildError, match=r"^cuobjdump with nvdisasm: found none beside .*, needed"):
        toolchain.find_cuobjdump(cuda)
    write_tool(tools, "nvdisasm", "")
    assert toolchain.find_cuobjdump(cuda) == str(tools / "cuobjdump")


def test_disassembler_of_triton(tools, monkeypatch):
    write_toolkit(tools, "13.0.88")
    cuda, _ = toolchain.find_cuda()
    folder = tools / "triton/backends/nvidia/bin"
    folder.mkdir(parents=True)
    (tools / "triton/__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tools), *sys.path])
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    for name in ("cuobjdump", "nvdisasm"):
        write_tool(folder, name, "")
    assert toolchain.find_cuobjdump(cuda) == str(folder / "cuobjdump")


def test_torch_without_cuda(tools, monkeypatch):
    write_torch(tools, "2.11.0+cpu", None)
    monkeypatch.setattr(sys, "path", [str(tools)])
    assert cuda.toolkit() == (None, "PyTorch 2.11.0+cpu is built without CUDA")
    monkeypatch.setenv("THUNDERKITTENS_CUDA", "1")
    with pytest.raises(BuildError, match=r"THUNDERKITTENS_CUDA=1: PyTorch 2.11.0\+cpu is"):
        cuda.toolkit()


def test_command_prints_one_sentence(tmp_path):
    environment = {**os.environ, "PATH": str(tmp_path), "THUNDERKITTENS_CUDA": "0"}
    command = [sys.executable, "-m", "build_tools", "ops"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: C++ compiler: found none, needed")
    assert done.stderr.count("\n") == 1
