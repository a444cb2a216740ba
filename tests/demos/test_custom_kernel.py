"""The demo of one's own kernels: what it says where something is missing, and that it builds.

The kernels themselves are tested by tests/kittens/classic, in the simulator and at ptxas.
"""

import functools
import os
import re
import sys
import types
import xml.etree.ElementTree
from pathlib import Path

import custom_kernel as program
import pytest
import timelines
import torch
from kernel_cases import all_cases

from build_tools import settings, toolchain
from tests.kittens.classic import test_classic
from tests.ptxas import machine_code, proxy_order


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
        (["--size", "100"], "--size must be a multiple of 8 from 8 to 65536, got 100"),
        (["--length", "many"], "invalid int value: 'many'"),
    ],
)
def test_bad_arguments_exit_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        program.main(arguments)
    assert caught.value.code == 2 and message in capsys.readouterr().err


def plain_attention(q, k, v, causal=False):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        scores = scores + torch.full_like(scores, -torch.inf).triu(1)
    return torch.softmax(scores, -1) @ v


def plain_linear_attention(q, k, v):
    return (q @ k.mT).tril() @ v


def in_float64(function):
    """A kernel that is right but for one rounding of its result."""
    return lambda *x, **options: function(*(t.double() for t in x), **options).bfloat16()


RIGHT = {
    "attention": plain_attention,
    "flash_attention_2": plain_attention,
    "load_store_compute_finish": plain_attention,
    "flash_attention_3": plain_attention,
    "linear_attention": plain_linear_attention,
    "gemm": torch.nn.functional.linear,
}


def cases_of(names):
    extension = types.SimpleNamespace(**{name: in_float64(RIGHT[name]) for name in names})
    return list(all_cases(extension, heads=2, length=192, size=136, device="cpu"))


def test_what_each_problem_has():
    found = [(case.title, list(case.kernels)) for case in cases_of(RIGHT)]
    ladder = [f"{name}.cu" for name in list(RIGHT)[:4]]
    of_heads = "of 2 heads, 192 tokens, head dimension"
    assert found == [
        (f"attention {of_heads} 64", ladder),
        (f"attention {of_heads} 64, causal", ladder[3:]),
        (f"attention {of_heads} 128", ladder[3:]),
        (f"attention {of_heads} 128, causal", ladder[3:]),
        (f"linear attention {of_heads} 64", ["linear_attention.cu"]),
        ("product a bᵀ of [136, 136] and [136, 136]", ["gemm.cu"]),
    ]
    older = [(case.title, list(case.kernels)) for case in cases_of(list(RIGHT)[:2])]
    assert older == [(f"attention {of_heads} 64", ladder[:2])]


@pytest.mark.parametrize("number", range(6))
def test_what_is_right_is_within_the_bound_and_what_is_not_is_beyond(number):
    case = cases_of(RIGHT)[number]
    for kernel in case.kernels.values():
        assert 0.0 < program.difference(case, kernel) <= 1.0

        def spoilt(*tensors, kernel=kernel):
            result = kernel(*tensors)
            return result.index_fill(0, torch.tensor([len(result) - 1]), 0.0)

        assert program.difference(case, spoilt) > 1.0


def test_the_peers_compute_the_same():
    for case in cases_of(RIGHT):
        for name, peer in case.peers.items():
            if name not in ("FlashAttention-2", "cuDNN"):  # they are the GPU's
                assert program.difference(case, peer) <= 1.0, name


def test_a_run_says_what_is_wrong_and_what_is_not_there(monkeypatch):
    """On a CPU, where no peer of attention runs."""
    extension = types.SimpleNamespace(
        attention=in_float64(plain_attention), flash_attention_2=lambda q, _k, _v: q
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(program, "all_cases", functools.partial(all_cases, device="cpu"))
    monkeypatch.setattr(program, "milliseconds", lambda call, *tensors: call(*tensors) is not None)
    good, lines = program.demo(extension, 2, 64, 8)
    said = [" ".join(line.split()) for line in lines]
    assert not good and said[2] == "attention of 2 heads, 64 tokens, head dimension 64"
    assert said[3].startswith("attention.cu right: largest difference from float64 0.")
    assert said[4].startswith("flash_attention_2.cu WRONG: largest difference from float64 ")
    assert said[5] == "attention.cu 1.000 ms 0.00 TFLOP/s"
    assert said[8].startswith("cuDNN not here: ")


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


@pytest.mark.tier(3)
@pytest.mark.parametrize("name", timelines.PICTURES)
def test_a_timeline_has_the_rows_of_its_kernel(name):
    """If a change is meant, `python -m tests.demos.timelines` draws them anew."""
    try:
        drawn = timelines.draw(name)
    except settings.BuildError as reason:
        pytest.skip(str(reason))
    kept = (timelines.FOLDER / f"{name}.svg").read_text()
    assert re.findall("<text.+</text>", kept) == re.findall("<text.+</text>", drawn)


def test_each_kernel_has_a_timeline_and_is_in_the_readme():
    sources = {path.stem for path in program.FOLDER.glob("*.cu")}
    listed = {*program.SOURCES, *program.SM90A_SOURCES} - {"binding.cpp"}
    assert sources == set(timelines.PICTURES) == {Path(name).stem for name in listed}
    readme = (program.FOLDER / "README.md").read_text()
    for name in sources:
        assert f"]({name}.cu)" in readme and f"]({name}.svg)" in readme, name


# Of each kernel, from which byte of its shared memory on TMA loads nothing; none: not known.
LOADED = {
    "load_store_compute_finish": [4 * 2 * 64 * 64 * 2],  # stages of keys and values, then o
    "flash_attention_3": [],  # o takes q's place, when all has been loaded
    "gemm": [4 * (128 + 256) * 64 * 2],  # stages of a and b, then c
    "linear_attention": [3 * 3 * 64 * 64 * 2],  # stages of q, k and v, then the state
}


@pytest.mark.tier(4)
@pytest.mark.parametrize("name", LOADED)
def test_in_the_machine_code_threads_fence_and_meet_before_they_arrive(name):
    """As tests/ptxas/test_proxy_order.py has it of the package's kernels."""
    toolkit, reason = toolchain.find_cuda(None)
    if toolkit is None:
        pytest.skip(reason)
    result = test_classic.compiled(toolkit, f"demo_{name}", "sm_90a")
    code = machine_code.disassembled(toolchain.find_cuobjdump(toolkit), result.output)
    assert len(code) == (4 if name == "flash_attention_3" else 1)
    for sass in code.values():
        assert proxy_order.copies(sass)
        assert not proxy_order.findings(sass, LOADED[name])


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
    attentions = ("attention", "flash_attention_2", "load_store_compute_finish")
    for name in (*attentions, "flash_attention_3", "linear_attention"):
        message = (
            f"{name}: expected contiguous bfloat16 tensors of 3 dimensions on one GPU, got CPU"
        )
        with pytest.raises(RuntimeError, match=message):
            getattr(extension, name)(x, x, x)
    with pytest.raises(RuntimeError, match="gemm: expected contiguous bfloat16 tensors of 2 dim"):
        extension.gemm(x[0], x[0])


@pytest.mark.gpu
def test_it_runs_and_is_right(capsys):
    pytest.importorskip("ninja", reason="ninja is not installed (requirements/test.txt)")
    assert program.main(["--heads", "3", "--length", "1088", "--size", "1160"]) == 0
    said = capsys.readouterr().out
    assert said.count(": largest difference") == said.count("right: ") >= 2
