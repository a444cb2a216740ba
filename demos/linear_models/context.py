"""What a long context costs: time and memory to read it, and for each token that comes after it.

A text is read in pieces, each with the state that the one before has left. What a model needs to do
so is the memory of one piece and its state: the same for any length, but for softmax attention.
"""

import ctypes
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import torch
from models.mixers import MixerModel, SoftmaxAttention, bytes_of

PIECES = {"cuda": 4096, "cpu": 1024}  # tokens read at once: a multiple of Hedgehog's windows
SHORTEST = 1024
STEPS = 16  # tokens after the context that are timed
# On a GPU a layer of which all kernels take all mixers, with heads of 128; on a CPU a small one.
GPU_MODEL = {"width": 1024, "heads": 8, "layers": 2}
CPU_MODEL = {"width": 128, "heads": 1, "layers": 1}


class Cost(NamedTuple):
    """Of one context."""

    tokens: int
    seconds: float  # to read it
    peak: int  # bytes, above the weights, while it was read and gone on with
    step: float  # seconds a token after it, the median
    state: int  # bytes that the model remembers


class Peak:
    """The most memory in use since it was made: torch's on a GPU, else the process's (Linux)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self.start = torch.cuda.memory_allocated(device)
            return
        ctypes.CDLL(None).malloc_trim(0)  # memory that is free already would not be seen again
        Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is in use
        self.start = self._line("VmRSS")

    def read(self) -> int:
        """Bytes above what was in use at the start."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self.start
        return self._line("VmHWM") - self.start

    def _line(self, name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def synchronize(device: torch.device) -> None:
    """Waits for a GPU: what runs on a CPU is done already."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@torch.no_grad()
def measure(mixer: str, longest: int, device: torch.device) -> list[Cost]:
    """Costs of contexts of SHORTEST tokens, twice as many … `longest`, with random weights."""
    torch.manual_seed(0)
    on_gpu = device.type == "cuda"
    model = MixerModel(mixer, 256, **(GPU_MODEL if on_gpu else CPU_MODEL)).to(device).eval()
    if on_gpu:
        model.to(torch.bfloat16)
    cost(model, 2 * PIECES[device.type], device)  # the first calls pay for the process's start
    lengths = [SHORTEST]
    while 2 * lengths[-1] <= longest:
        lengths.append(2 * lengths[-1])
    return [cost(model, length, device) for length in lengths]


def cost(model: MixerModel, length: int, device: torch.device) -> Cost:
    """Reads `length` random tokens in pieces, then takes a few steps."""
    tokens = torch.randint(256, (1, length), device=device)
    for block in model.blocks:
        if isinstance(block.mixer, SoftmaxAttention):
            block.mixer.room = length + STEPS  # it may know, so that its cache need not move
    peak = Peak(device)
    states = model.init_state(1)
    synchronize(device)
    start = time.perf_counter()
    for piece in tokens.split(PIECES[device.type], 1):
        logits = model.read(piece, states)
    synchronize(device)
    seconds, steps = time.perf_counter() - start, []
    for _ in range(STEPS):
        start = time.perf_counter()
        logits = model.step(logits.argmax(-1), states)
        synchronize(device)
        steps.append(time.perf_counter() - start)
    remembered = bytes_of([state.mixer for state in states])
    return Cost(length, seconds, peak.read(), statistics.median(steps), remembered)
