"""`python -m benchmarks.classic_library`: builds what `python -m benchmarks classic` times.

The library holds the kernels of tests/kittens/classic and two of the ladder, for sm_90a, behind a C
interface (classic_kernels.cu). Only nvcc is needed to build it, and only a GPU to run it: where one
machine does not have both, the file travels, `python -m benchmarks classic --library FILE`.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import functools
import re
import shutil
import sys
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import Call, MissingPeer
from build_tools import compile, cuda, settings, toolchain
from build_tools.settings import ROOT, BuildError

LADDER = ("flash_attention_3", "gemm")
SOURCES = ("benchmarks/classic_kernels.cu", *(f"demos/custom_kernel/{n}.cu" for n in LADDER))
FOLDERS = ("tests/kittens/classic", "demos/custom_kernel")
FUNCTIONS = re.findall(r"KITTENS_CLASSIC_FUNCTION (\w+)\(", (ROOT / SOURCES[0]).read_text())
MAP_BYTES = 128  # of a CUtensorMap


def default_path() -> Path:
    """Where the library is built, and looked for."""
    return settings.build_dir() / "benchmarks/libclassic.so"


def jobs(toolkit: toolchain.Cuda) -> list[compile.Job]:
    """The compilations of its sources."""
    folders = [word for folder in FOLDERS for word in ("-I", folder)]
    found = [cuda.job(toolkit, Path(source), "sm_90a") for source in SOURCES]
    return [
        dataclasses.replace(job, command=(job.command[0], *folders, *job.command[1:]))
        for job in found
    ]


def build(path: Path) -> None:
    """Builds it.

    Raises:
        BuildError: There is no nvcc, or it fails.
    """
    toolkit = cuda.tests_toolkit()
    objects = compile.run(jobs(toolkit), "The classic kernels")
    compiler, runtime = toolchain.find_compiler(), toolkit.cudart
    link = compile.Job(
        name="benchmarks/classic",
        command=(
            *(compiler.path, "-shared", "-o", "{output}", "{inputs}", str(runtime)),
            f"-Wl,-rpath,{runtime.parent}",  # where torch has not loaded it already
        ),
        tool=compiler.name,
        suffix=".so",
        inputs=tuple(result.output for result in objects),
        depends=False,
    )
    (linked,) = compile.run([link], "Linking")
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(linked.output, path)


class Library:
    """The kernels, of tensors on the GPU that have no gaps.

    A method makes what a kernel needs once, and returns the call that is timed.

    Args:
        path: The library.
    """

    def __init__(self, path: Path) -> None:
        self.c = ctypes.CDLL(str(path))
        for name in FUNCTIONS:
            getattr(self.c, name).restype = ctypes.c_char_p

    def run(self, name: str, *arguments: Tensor | int) -> None:
        """Calls a function: of a tensor with its address.

        Raises:
            RuntimeError: What the function says went wrong.
        """
        numbers = (
            ctypes.c_void_p(x.data_ptr()) if isinstance(x, Tensor) else ctypes.c_int(x)
            for x in arguments
        )
        stream = torch.cuda.current_stream().cuda_stream if torch.cuda.is_available() else None
        extra = () if name.endswith("_maps") else (ctypes.c_void_p(stream),)
        said = getattr(self.c, name)(*numbers, *extra)
        if said:
            raise RuntimeError(f"{name}: {said.decode()}")

    def maps(self, name: str, count: int, *arguments: Tensor | int) -> Tensor:
        """Tensor maps in the GPU's memory."""
        maps = torch.zeros(count * MAP_BYTES + 64, dtype=torch.uint8)
        start = -maps.data_ptr() % 64  # the alignment of a map
        maps = maps[start : start + count * MAP_BYTES]
        self.run(name, maps, *arguments)
        return maps.to(arguments[0].device)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, warps: int) -> Call:
        """attention.cu: q, k and v [heads, n, 64]."""
        o, (heads, n, _) = torch.empty_like(q), q.shape
        return lambda: (self.run("classic_attention", warps, q, k, v, o, heads, n) or o,)

    def h100_attention(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Call:
        """h100_attention.cu: q, k and v [heads, n, 64 or 128]."""
        o, shape = torch.empty_like(q), q.shape
        maps = self.maps("classic_h100_attention_maps", 4, q, k, v, o, *shape)
        return lambda: (self.run("classic_h100_attention", maps, *shape, causal) or o,)

    def h100_gemm(self, a: Tensor, b: Tensor) -> Call:
        """h100_gemm.cu: a b."""
        sizes = (a.shape[0], b.shape[1], a.shape[1])
        c = a.new_empty(sizes[:2])
        maps = self.maps("classic_h100_gemm_maps", 3, a, b, c, *sizes)
        return lambda: (self.run("classic_h100_gemm", maps, *sizes) or c,)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor) -> Call:
        """layer_norm.cu: x [rows, 1024]."""
        y = torch.empty_like(x)
        return lambda: (self.run("classic_layer_norm", x, weight, bias, y, len(x)) or y,)

    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor) -> Call:
        """rotary.cu: x [heads, n, 128], cos and sin [n, 64]."""
        y = torch.empty_like(x)
        return lambda: (self.run("classic_rotary", x, cos, sin, y, *x.shape[:2]) or y,)

    def row_sums(self, x: Tensor) -> Call:
        """row_sum.cu: x [rows, columns]."""
        sums = x.new_empty(len(x), dtype=torch.float32)
        return lambda: (self.run("classic_row_sums", x, sums, *x.shape) or sums,)

    def ladder_attention(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Call:
        """The ladder's fourth rung."""
        o, shape = torch.empty_like(q), q.shape
        return lambda: (self.run("ladder_attention", q, k, v, o, *shape, causal) or o,)

    def ladder_gemm(self, a: Tensor, b: Tensor) -> Call:
        """The ladder's product, which takes the transpose of b."""
        sizes = (a.shape[0], b.shape[1], a.shape[1])
        bt, c = b.t().contiguous(), a.new_empty(sizes[:2])
        return lambda: (self.run("ladder_gemm", a, bt, c, *sizes) or c,)


@functools.cache
def load(path: Path | None = None) -> Library:
    """The library at a path; without one, where it is built, which happens if there is an nvcc.

    Raises:
        MissingPeer: There is none.
    """
    try:
        if path is None:
            path = default_path()
            if toolchain.find_cuda(None)[0]:
                build(path)
        return Library(path)
    except (BuildError, OSError) as problem:
        raise MissingPeer(
            f"no library of classic kernels ({problem}); where nvcc is, "
            "`python -m benchmarks.classic_library` builds it"
        ) from problem


def main(argv: list[str] | None = None) -> int:
    """0: built; 1: not (said in one sentence)."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.classic_library", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--output", type=Path, default=default_path(), metavar="FILE")
    path = parser.parse_args(argv).output
    try:
        build(path)
    except BuildError as problem:
        print(f"classic_library: {problem}", file=sys.stderr)
        return 1
    print(f"wrote {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
