"""Which Python the demo and the tests run in, and what is installed into it."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from build_tools import environment, toolchain
from build_tools.settings import ROOT, BuildError


def test_every_requirement_is_pinned():
    for purpose in ("demo", "test", "lint", "docs"):
        for package in environment.requirements(purpose):
            assert package.count("==") == 1, package


def test_another_torch_replaces_the_pinned_one():
    pinned = environment.pinned_torch()
    assert f"torch=={pinned}" in environment.requirements("test")
    packages = environment.requirements("test", "2.15.0")
    assert "torch==2.15.0" in packages
    assert f"torch=={pinned}" not in packages


def test_interpreter_with_the_pinned_torch_is_used_as_it_is(monkeypatch, capsys):
    installed = toolchain.find_torch().version.split("+")[0]
    monkeypatch.setattr(environment, "pinned_torch", lambda: installed)
    monkeypatch.setattr(sys, "prefix", "/an/environment/of/the/users")
    monkeypatch.setattr(environment, "_pip", None)  # a download would fail
    monkeypatch.setattr(environment, "_is_installed", lambda package, exactly=False: exactly)
    assert environment.prepare("test", installed) == sys.executable
    assert "what needs it is skipped: " in capsys.readouterr().out


def test_demo_without_its_packages_is_one_sentence(monkeypatch):
    monkeypatch.setattr(sys, "prefix", "/an/environment/of/the/users")
    monkeypatch.setattr(environment, "_pip", None)  # a download would fail
    monkeypatch.setattr(
        environment, "_is_installed", lambda name, exactly=False: name.startswith("torch=")
    )
    fix = f"`{sys.executable} -m pip install -r requirements/demo.txt`"
    with pytest.raises(BuildError, match=r"^demo: found no .*rich==.*, needed to run it") as caught:
        environment.enter("demo")
    assert str(caught.value).endswith(fix)


@pytest.mark.parametrize("command", ["ops", "simulator", "lint", "clean"])
def test_surplus_arguments_are_refused(command):
    words = [sys.executable, "-m", "build_tools", command, "everything"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{command} takes no everything" in done.stderr


def test_packages_are_installed_once(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    installed = []
    monkeypatch.setattr(environment, "_make", lambda folder: (folder / "bin").mkdir(parents=True))
    monkeypatch.setattr(environment, "_holds", lambda packages: False)
    monkeypatch.setattr(environment, "_add_nvcc", lambda folder: None)

    def install(folder: Path, packages: list[str]) -> None:
        installed.append(packages)
        (folder / "bin" / "python").touch()

    monkeypatch.setattr(environment, "_pip", install)
    for _ in range(2):
        assert environment.prepare("demo") == str(tmp_path / ".venv" / "bin" / "python")
    other = environment.prepare("demo", "2.15.0")
    assert other == str(tmp_path / ".venv-torch-2.15.0" / "bin" / "python")
    assert len(installed) == 2


def test_torch_must_be_a_version():
    with pytest.raises(BuildError, match=r"TORCH must be a version such as 2\.15\.0, got 'newest'"):
        environment.prepare("test", "newest")


def test_python_without_venv_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BuildError, match=r"without ensurepip and pip, needed .* python3-venv`"):
        environment._make(tmp_path / ".venv")


def test_nvcc_is_the_one_that_torch_pins():
    if toolchain.nvcc_requirement() is None:
        pytest.skip("this PyTorch does not use CUDA's Python packages")
    name, version = toolchain.nvcc_requirement().split("==")
    assert name == "cuda-toolkit[nvcc,crt,nvvm,cudart,cccl]"
    assert version.startswith(toolchain.find_torch().cuda)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_lists_its_targets():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for target in ("demo", "test", "bench", "docs", "lint", "format", "clean"):
        assert f"make {target} " in done.stdout
