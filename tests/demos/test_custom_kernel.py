"""The demo of one's own kernel: what it says where something is missing, and that it builds.

The kernel itself is tested by tests/kittens/classic, in the simulator and for every architecture.
"""

import os
import sys
import xml.etree.ElementTree
from pathlib import Path

import custom_kernel as program
import pytest
import torch

from build_tools import settings, toolchain


def nothing_found(*_args, **_options):
    return None


@pytest.fixture
def hopper(monkeypatch):
    """A machine that seems to have an H200; the program's changes of variables are undone."""
    for name in ("PATH", "CUDA_HOME"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert program.main([]) == 2
    error = capsys.readouterr().err
    assert error.startswith("custom_kernel: found no GPU") and error.count("\n") == 1


def test_an_old_gpu_is_refused(hopper, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert program.main([]) == 2
    assert "found a GPU of sm_75, needed sm_80 or newer" in capsys.readouterr().err


def test_without_nvcc_it_names_the_remedy(hopper, monkeypatch, capsys):
    monkeypatch.setattr(program.shutil, "which", nothing_found)
    monkeypatch.setattr(sys, "path", [])
    assert program.main([]) == 2
    error = capsys.readouterr().err
    assert "found no nvcc" in error and "pip install 'cuda-toolkit[nvcc," in error


def test_without_ninja_it_names_the_remedy(hopper, monkeypatch, capsys):
    monkeypatch.setattr(program, "find_toolkit", lambda: Path("/toolkit"))
    monkeypatch.setattr(program.shutil, "which", nothing_found)
    assert program.main([]) == 2
    assert "found no ninja" in capsys.readouterr().err


def test_the_runtime_of_a_python_package_is_found(tmp_path):
    toolkit, build = tmp_path / "cu13", tmp_path / "build"
    (toolkit / "lib").mkdir(parents=True)
    build.mkdir()
    with pytest.raises(program.MissingError, match=r"found no libcudart\.so"):
        program.runtime_library(toolkit, build)
    (toolkit / "lib" / "libcudart.so.13").write_text("")
    for _ in range(2):
        assert program.runtime_library(toolkit, build) == build
    assert (build / "libcudart.so").resolve() == toolkit / "lib" / "libcudart.so.13"
    (toolkit / "lib" / "libcudart.so").write_text("")
    assert program.runtime_library(toolkit, build) == toolkit / "lib"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--heads", "0"], "--heads must be 1 to 65535, got 0"),
        (["--length", "100"], "--length must be a multiple of 64 from 64 to 2^24, got 100"),
        (["--length", "many"], "invalid int value: 'many'"),
    ],
)
def test_bad_arguments_exit_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        program.main(arguments)
    assert caught.value.code == 2 and message in capsys.readouterr().err


def test_the_reference_is_attention():
    q, k, v = (torch.randn(96, 64, dtype=torch.bfloat16) for _ in range(3))
    expected, bound = program.reference(q, k, v)
    attention = torch.nn.functional.scaled_dot_product_attention
    same = attention(*(x.double()[None, None] for x in (q, k, v)))[0, 0]
    torch.testing.assert_close(expected, same)
    assert (bound > 0).all() and (bound < 0.05).all()


def test_a_picture_of_what_is_printed(monkeypatch, tmp_path, capsys):
    """Without a GPU: what the kernel would say is given."""
    lines = ["attention: right", "this kernel  1.000 ms  [not markup]  ████"]
    monkeypatch.setattr(program, "compile_extension", lambda: None)
    monkeypatch.setattr(program, "demo", lambda *_: (True, lines))
    path = tmp_path / "picture.svg"
    assert program.main(["--svg", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == lines
    words = " ".join(xml.etree.ElementTree.parse(path).getroot().itertext()).replace("\xa0", " ")
    assert "attention: right" in words and "[not markup]" in words and "████" in words


@pytest.mark.tier(4)
def test_torchs_loader_builds_it(hopper, monkeypatch):
    """As on a machine with a GPU, but that nothing is launched."""
    pytest.importorskip("ninja", reason="ninja is not installed (requirements/test.txt)")
    major = torch.version.cuda and int(torch.version.cuda.split(".")[0])
    toolkit, reason = toolchain.find_cuda(major)
    if toolkit is None:
        pytest.skip(reason)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(settings.build_dir() / "torch_extensions"))
    extension = program.compile_extension()
    x = torch.zeros(1, 64, 64, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="attention: q, k and v must be contiguous bfloat16"):
        extension.attention(x, x, x)


@pytest.mark.gpu
def test_it_runs_and_is_right(capsys):
    pytest.importorskip("ninja", reason="ninja is not installed (requirements/test.txt)")
    assert program.main(["--heads", "3", "--length", "1088"]) == 0
    assert "right" in capsys.readouterr().out
