"""What launches meet on a GPU: errors of others, streams that share a handle."""

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import thunderkittens
from tests.families.attention import cases
from tests.families.attention.cases import Case
from thunderkittens.testing import memory

pytestmark = pytest.mark.gpu

LARGE = Case(700, 700, True, 4, 64, key_heads=4, batch=8)  # a dynamic schedule, by a tile counter
PER_THREAD = 2  # cudaStreamPerThread, as a number
NO_DEVICE = 101  # cudaErrorInvalidDevice
# By ordinary launches the numbers are the same.
ORDINARY = """
import torch
import thunderkittens
x = torch.arange(4096.0, device="cuda").view(4, 1024).bfloat16()
for _ in range(50):
    x = thunderkittens.rms_norm(thunderkittens.gelu(thunderkittens.layer_norm(x)))
print(x.float().sum().item())
"""


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


@pytest.fixture(scope="module")
def runtime() -> ctypes.CDLL:
    """The CUDA runtime that torch and our libraries share."""
    torch.cuda.init()
    lines = Path("/proc/self/maps").read_text().splitlines()
    (path,) = {line.split()[-1] for line in lines if "libcudart.so" in line}
    return ctypes.CDLL(path)


def test_an_error_that_others_left_is_not_ours(runtime):
    x = torch.randn(4, 64, device="cuda")
    want = thunderkittens.layer_norm(x)
    torch.cuda.synchronize()
    assert runtime.cudaSetDevice(1000) == NO_DEVICE  # and nobody reads it
    with pytest.raises(RuntimeError, match="not one of ours.*cudaErrorInvalidDevice"):
        thunderkittens.layer_norm(x)
    assert memory.bits_equal(thunderkittens.layer_norm(x), want)


def check_all(results, want) -> None:
    torch.cuda.synchronize()
    for result in results:
        for got, first in zip(result, want, strict=True):
            assert memory.bits_equal(got, first)


def test_the_stream_of_each_thread():
    """One handle, and a stream for each thread: their launches overlap."""
    tensors = cases.make(LARGE, "cuda")
    want = cases.forward(LARGE, *tensors)
    torch.cuda.synchronize()

    def call_often(_):
        with torch.cuda.stream(torch.cuda.ExternalStream(PER_THREAD)):
            return [cases.forward(LARGE, *tensors) for _ in range(20)]

    # All results are kept: torch would give their memory to another thread's launch.
    with ThreadPoolExecutor(4) as pool:
        check_all([result for mine in pool.map(call_often, range(4)) for result in mine], want)


def test_a_stream_whose_handle_was_another_s(runtime):
    """A stream may be destroyed while its work still runs, and the next one have its handle."""
    tensors = cases.make(LARGE, "cuda")
    want = cases.forward(LARGE, *tensors)
    torch.cuda.synchronize()
    results = []
    for _ in range(40):
        handle = ctypes.c_void_p()
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0  # non-blocking
        with torch.cuda.stream(torch.cuda.ExternalStream(handle.value)):
            results += [cases.forward(LARGE, *tensors) for _ in range(2)]
        assert runtime.cudaStreamDestroy(handle) == 0
    check_all(results, want)


@pytest.mark.parametrize(("rows", "width"), [(132, 50257), (264, 8192), (8, 50304)])
def test_few_losses_on_more_streams_than_grids_fit(runtime, rows, width):
    """A last block that waits never takes the place of those it waits for (others_find_room).

    A GPU runs 128 grids at a time; of 160 streams some wait, beside products that fill it. (torch's
    own streams are 32, whatever one asks for.)
    """
    logits = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    targets = torch.randint(0, width, (rows,), device="cuda")
    square = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    want = thunderkittens.cross_entropy(logits, targets)
    handles = [ctypes.c_void_p() for _ in range(160)]
    for handle in handles:
        assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0  # non-blocking
    torch.cuda.synchronize()
    totals = []
    for turn in range(20):
        for number, handle in enumerate(handles):
            with torch.cuda.stream(torch.cuda.ExternalStream(handle.value)):
                if (number + turn) % 40 == 0:
                    torch.mm(square, square)
                totals.append(thunderkittens.cross_entropy(logits, targets))
    torch.cuda.synchronize()
    for handle in handles:
        assert runtime.cudaStreamDestroy(handle) == 0
    assert all(torch.equal(total, want) for total in totals)


def test_launches_that_shall_not_be_programmatic():
    printed = set()
    for value in ("0", "1"):
        environment = os.environ | {"KITTENS_PDL": value}
        command = [sys.executable, "-c", ORDINARY]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        printed.add(done.stdout)
    assert len(printed) == 1
