"""The benchmark of the classic kernels: its problems on a CPU, its library as nvcc builds it."""

import ctypes

import pytest
import torch
from torch.nn import functional

from benchmarks import bench_classic as bench
from benchmarks import classic_library, cli, harness
from benchmarks.harness import OURS, MissingPeer, WrongResult
from build_tools import compile, resources, toolchain
from build_tools.settings import BuildError
from tests.kittens.classic import test_classic


class Clock:
    """Says that every call took as long."""

    def median_time(self, fn):
        fn()
        return 1e-3

    def sustained(self, fns):
        return {name: self.median_time(fn) for name, fn in fns.items()}


class Formulas:
    """What the library computes, by torch."""

    def __init__(self, error=0.0):
        self.error = error

    def of(self, result):
        return lambda: ((result + self.error).to(result.dtype),)

    def attention(self, q, k, v, warps=4, causal=False):
        assert warps in (4, 8)
        attend = functional.scaled_dot_product_attention
        return self.of(attend(q.float(), k.float(), v.float(), is_causal=causal).bfloat16())

    h100_attention = ladder_attention = attention

    def h100_gemm(self, a, b):
        return self.of((a.float() @ b.float()).bfloat16())

    ladder_gemm = h100_gemm

    def layer_norm(self, x, weight, bias):
        y = functional.layer_norm(x.float(), x.shape[-1:], weight.float(), bias.float())
        return self.of(y.bfloat16())

    def rotary(self, x, cos, sin):
        return self.of(bench.rotate(x.float(), cos.float(), sin.float()).bfloat16())

    def row_sums(self, x):
        return self.of(x.float().sum(-1))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(harness, "DEVICE", "cpu")
    monkeypatch.setattr(harness, "matrix_product_rate", lambda timer: 700.0)
    monkeypatch.setattr(harness, "copy_rate", lambda work, graph, timer: 4.0)
    monkeypatch.setattr(bench, "FIRST", (2, 128))
    monkeypatch.setattr(bench, "H100", ((64, True, 128), (128, False, 128)))
    monkeypatch.setattr(bench, "TOKENS_BY_WIDTH", 2 * 64 * 128)
    monkeypatch.setattr(bench, "PRODUCTS", ((128, 256, 64),))
    monkeypatch.setattr(bench, "NORM", (8, 1024))
    monkeypatch.setattr(bench, "ROTARY", (2, 64))
    monkeypatch.setattr(bench, "SUMS", (16, 512))


def test_each_problem_is_right_and_measurable(monkeypatch):
    monkeypatch.setattr(classic_library, "load", lambda path: Formulas())
    missing = {"cuDNN"}  # on a CPU
    ops = []
    for case in bench.cases():
        result = harness.measure(case, Clock())
        assert result.figure(OURS) > 0
        assert set(result.skipped) <= missing
        assert set(result.seconds) | missing >= set(case.contenders)
        ops.append(result.op)
    assert len(ops) == 8 and len(set(ops)) == 7


def test_a_wrong_kernel_is_found_before_it_is_timed(monkeypatch):
    monkeypatch.setattr(classic_library, "load", lambda path: Formulas(error=0.1))
    for case in bench.cases(quick=True):
        with pytest.raises(WrongResult, match="thunderkittens"):
            harness.measure(case, Clock())


def test_without_a_library_the_others_run(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cli, "machine", lambda commit: {})
    missing = ["--library", str(tmp_path / "missing.so")]
    assert cli.main(["classic", *missing]) == 2
    assert "classic left out: no library of classic kernels" in capsys.readouterr().err
    monkeypatch.setattr(harness, "families", lambda: ["classic"])
    assert cli.main(missing) == 0
    with pytest.raises(MissingPeer, match="classic_library` builds it"):
        classic_library.load(tmp_path / "missing.so")


@pytest.mark.tier(4)
def test_the_library_has_every_kernel_and_no_spills(tmp_path):
    try:
        classic_library.build(tmp_path / "libclassic.so")
        toolkit, _ = toolchain.find_cuda(None)
    except BuildError as reason:
        pytest.skip(str(reason))
    (ours, *_) = compile.run(classic_library.jobs(toolkit), "The classic kernels")
    said = ours.job.log_path.read_text()
    assert len(resources.kernels(said)) == 10 and not resources.complaints(said)
    assert (
        test_classic.check_fences(toolkit, ours.output) == 5
    )  # four of attention, and the product
    library = classic_library.Library(tmp_path / "libclassic.so")
    assert len(classic_library.FUNCTIONS) == 10
    for name in classic_library.FUNCTIONS:
        assert ctypes.cast(getattr(library.c, name), ctypes.c_void_p).value


@pytest.mark.tier(4)
def test_what_goes_wrong_is_said(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("a GPU is there: nothing goes wrong")
    try:
        classic_library.build(tmp_path / "libclassic.so")
    except BuildError as reason:
        pytest.skip(str(reason))
    library = classic_library.Library(tmp_path / "libclassic.so")
    x = torch.zeros(16, 512, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="classic_row_sums: "):
        library.row_sums(x)()
    with pytest.raises(RuntimeError, match="classic_h100_gemm_maps: tensor map: "):
        library.h100_gemm(x.new_zeros(128, 64), x.new_zeros(64, 256))
