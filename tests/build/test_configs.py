"""configs.py is complete, and what the environment's variables ask for is understood."""

import ast
import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest

import configs
import thunderkittens
from build_tools import cuda, ops, settings, toolchain
from build_tools.settings import ROOT, BuildError

FAMILIES = sorted(path.name for path in (ROOT / "csrc" / "kernels").iterdir() if path.is_dir())


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("KERNELS", "ARCHITECTURES", "CUDA", "JOBS"):
        monkeypatch.delenv(f"THUNDERKITTENS_{name}", raising=False)
    monkeypatch.delenv("MAX_JOBS", raising=False)


def test_every_family_has_one_record():
    assert sorted(kernel.name for kernel in configs.KERNELS) == FAMILIES


@pytest.mark.parametrize("kernel", configs.KERNELS, ids=lambda kernel: kernel.name)
def test_record_is_complete(kernel):
    assert kernel.ops
    assert set(kernel.architectures) <= set(settings.KNOWN_ARCHITECTURES)
    for op in kernel.ops:
        assert (ROOT / "csrc" / "kernels" / kernel.name / "torch" / f"{op}.cpp").is_file(), op
    if cuda.sources(kernel):
        assert kernel.architectures
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.selected = False


def test_ops_have_one_family():
    ops = [op for kernel in configs.KERNELS for op in kernel.ops]
    assert len(set(ops)) == len(ops)


@pytest.mark.parametrize("name", ["norm", "layer_norm", " norm , "])
def test_kernels_are_selected_by_family_or_op(monkeypatch, name):
    monkeypatch.setenv("THUNDERKITTENS_KERNELS", name)
    assert [kernel.name for kernel in settings.selected_kernels()] == ["norm"]


def test_the_demo_builds_what_it_calls_and_what_is_there(monkeypatch, tmp_path):
    names = [kernel.name for kernel in configs.KERNELS]
    needed = [names[0], names[3]]
    assert ops.families_for(needed, tmp_path) == needed
    info = {"version": "0.1.0", "kernels": {names[1]: ["sm_90a"], names[0]: []}}
    library = tmp_path / "lib" / ops.LIBRARY
    library.parent.mkdir()
    library.write_bytes(b"\x7fELF\0" + json.dumps(info, indent=1).encode() + b"\0}\n}\0")
    assert ops.families_for(needed, tmp_path) == [names[0], names[1], names[3]]
    library.write_bytes(b"\x7fELF\0")
    assert ops.families_for(needed, tmp_path) == needed
    monkeypatch.setenv("THUNDERKITTENS_KERNELS", names[2])
    assert ops.families_for(needed, tmp_path) == [names[2]]


def test_the_demo_calls_no_other_families():
    """Which ops the modules of demos/generate name, and the layers whose modules they name."""
    called = {name for path in _modules_of("generate") for name in _names_of_package(path)}
    for layer in called & set(thunderkittens.nn.__all__):
        module = sys.modules[getattr(thunderkittens.nn, layer).__module__]
        called |= {name for name, value in vars(module).items() if callable(value)}
    families = {kernel.name for kernel in configs.KERNELS if called & set(kernel.ops)}
    assert families == set(configs.DEMO_KERNELS)


def _modules_of(demo: str) -> set[Path]:
    """The files of a demo, and those of demos/models that they import, and so on."""
    left = sorted((ROOT / "demos" / demo).glob("*.py"))
    found: set[Path] = set()
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        names = re.findall(r"^from models\.(\w+) import", path.read_text(), re.MULTILINE)
        left += [ROOT / "demos" / "models" / f"{name}.py" for name in names]
    return found


def _names_of_package(path: Path) -> set[str]:
    """What a module names of thunderkittens and thunderkittens.nn."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("thunderkittens"):
            names |= {name.name for name in node.names}
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
    return names


def test_unknown_kernel_suggests_the_nearest(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_KERNELS", "layernorm")
    with pytest.raises(BuildError, match=r"unknown kernel 'layernorm'; did you mean 'layer_norm'"):
        settings.selected_kernels()


def test_unknown_architecture_suggests_the_nearest(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_ARCHITECTURES", "sm_90")
    with pytest.raises(BuildError, match=r"unknown architecture 'sm_90'; did you mean 'sm_90a'"):
        settings.selected_architectures()


def test_architectures_are_ordered_and_unique(monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_ARCHITECTURES", "sm_90a,sm_80,sm_90a")
    assert settings.selected_architectures() == ("sm_80", "sm_90a")


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ("8.0", "sm_80"),
        ("8.6", "sm_86"),
        ("8.9", "sm_89"),
        ("9.0", "sm_90a"),
        ("10.0", "sm_100"),
        ("10.3", "sm_103"),
        ("12.0", "sm_120"),
        ("12.1", "sm_120"),
    ],
)
def test_the_newest_architecture_of_a_gpu(capability, architecture):
    assert settings.architecture_of(capability) == architecture


@pytest.mark.parametrize("capability", ["7.5", "11.0"])
def test_a_gpu_that_no_architecture_runs_on(capability):
    with pytest.raises(BuildError, match=f"compute capability {capability}, which no architecture"):
        settings.architecture_of(capability)


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """What nvidia-smi is to print; a machine without one until then."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("THUNDERKITTENS_ARCHITECTURES", "native,sm_90a")
    settings._native_architectures.cache_clear()

    def prints(text):
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\necho '{text}'\n")
        tool.chmod(0o755)

    yield prints
    settings._native_architectures.cache_clear()


def test_native_is_the_gpus_of_this_machine(driver):
    driver("8.6\n9.0\n8.6")
    assert settings.selected_architectures() == ("sm_86", "sm_90a")


@pytest.mark.parametrize("says", [None, ""])
def test_native_without_a_gpu(driver, says):
    if says is not None:
        driver(says)
    with pytest.raises(BuildError, match="nvidia-smi finds none; name architectures: sm_80, sm_86"):
        settings.selected_architectures()


def test_an_architecture_needs_a_toolkit_that_knows_it(monkeypatch):
    old = toolchain.Cuda("/opt/nvcc", "12.3.107", Path("include"), Path("libcudart.so"), "PATH")
    monkeypatch.setenv("THUNDERKITTENS_KERNELS", "activation")
    monkeypatch.setenv("THUNDERKITTENS_ARCHITECTURES", "sm_80,sm_120")
    with pytest.raises(BuildError, match=r"sm_120 needs CUDA 12.8, found 12.3.107 \(/opt/nvcc\)"):
        cuda.kernel_jobs(old)
    monkeypatch.setenv("THUNDERKITTENS_ARCHITECTURES", "sm_80")
    assert cuda.kernel_jobs(old)


def test_sm90_sources_are_for_sm90a_alone():
    wanted = ("sm_80", "sm_90a")
    assert cuda.architectures(ROOT / "attention_sm90.cu", wanted) == ["sm_90a"]
    assert cuda.architectures(ROOT / "layer_norm.cu", wanted) == ["sm_80", "sm_90a"]


def test_jobs(monkeypatch):
    assert settings.jobs() >= 1
    monkeypatch.setenv("MAX_JOBS", "7")
    assert settings.jobs() == 7
    monkeypatch.setenv("THUNDERKITTENS_JOBS", "3")
    assert settings.jobs() == 3
    monkeypatch.setenv("THUNDERKITTENS_JOBS", "many")
    with pytest.raises(BuildError, match=r"THUNDERKITTENS_JOBS .* got 'many'"):
        settings.jobs()


def test_cuda_mode(monkeypatch):
    assert settings.cuda_mode() == "auto"
    monkeypatch.setenv("THUNDERKITTENS_CUDA", "yes")
    with pytest.raises(BuildError, match="must be 0, 1 or auto, got 'yes'"):
        settings.cuda_mode()
