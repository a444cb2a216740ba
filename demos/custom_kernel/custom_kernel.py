"""Compiles two kernels of its own, written on kittens, and checks them against torch.

    python demos/custom_kernel/custom_kernel.py
    python demos/custom_kernel/custom_kernel.py --heads 32 --length 8192

attention.cu is a FlashAttention in under 100 lines, and flash_attention_2.cu one that overlaps its
copies; torch's own extension loader compiles them for the GPU that is there. The reference is
softmax(q kᵀ / 8) v in float64.

Exit codes: 0 good; 1 a kernel is wrong; 2 bad arguments, or something is missing.
"""

import argparse
import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

import thunderkittens

FOLDER = Path(__file__).resolve().parent
SOURCES = ("attention.cu", "flash_attention_2.cu", "binding.cpp")


class MissingError(Exception):
    """What this machine lacks, in one sentence."""


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="custom_kernel", description=__doc__.split("\n")[0])
    parser.add_argument("--heads", type=int, default=16, help="1 to 65535 (default: 16)")
    parser.add_argument("--length", type=int, default=2048, help="a multiple of 64 (default: 2048)")
    parser.add_argument("--svg", type=Path, help="a file: what is printed, as a picture")
    options = parser.parse_args(arguments)
    if not 1 <= options.heads <= 65535:
        parser.error(f"--heads must be 1 to 65535, got {options.heads}")
    if not 64 <= options.length <= 1 << 24 or options.length % 64:
        parser.error(f"--length must be a multiple of 64 from 64 to 2^24, got {options.length}")
    try:
        extension = compile_extension()
    except MissingError as error:
        print(f"custom_kernel: {error}", file=sys.stderr)
        return 2
    good, lines = demo(extension, options.heads, options.length)
    print("\n".join(lines))
    if options.svg:
        draw(lines, options.svg)
    return 0 if good else 1


def compile_extension() -> ModuleType:
    """Compiles the kernels and their binding for this GPU, once, and imports them."""
    if not torch.cuda.is_available():
        raise MissingError("found no GPU that torch can use, needed one of sm_80 or newer")
    major, minor = torch.cuda.get_device_capability()
    if major < 8:
        raise MissingError(f"found a GPU of sm_{major}{minor}, needed sm_80 or newer")
    toolkit = find_toolkit()
    if shutil.which("ninja") is None:
        os.environ["PATH"] += os.pathsep + str(Path(sys.executable).parent)
    if shutil.which("ninja") is None:
        raise MissingError("found no ninja, needed by torch's loader; run `pip install ninja`")
    os.environ["CUDA_HOME"] = str(toolkit)  # read when the next line is imported
    from torch.utils.cpp_extension import get_default_build_root, load

    build = Path(get_default_build_root()) / f"thunderkittens_attention_{torch.__version__}"
    build.mkdir(parents=True, exist_ok=True)
    number = f"{major}{minor}" + ("a" if major == 9 else "")
    return load(
        name="thunderkittens_attention",
        sources=[str(FOLDER / name) for name in SOURCES],
        extra_include_paths=[thunderkittens.include_dir()],
        extra_cflags=["-std=c++20", "-O2"],
        extra_cuda_cflags=["-std=c++20", "-O3", f"-gencode=arch=compute_{number},code=sm_{number}"],
        extra_ldflags=[f"-L{runtime_library(toolkit, build)}"],
        build_directory=str(build),
    )


def find_toolkit() -> Path:
    """Returns the folder of nvcc: the one on PATH, or that of the Python package."""
    found = shutil.which("nvcc")
    packages = [p for folder in sys.path for p in Path(folder or ".").glob("nvidia/cu*/bin/nvcc")]
    for nvcc in [*([Path(found).resolve()] if found else []), *packages]:
        if (nvcc.parent.parent / "include" / "cuda_runtime.h").is_file():
            return nvcc.parent.parent
    raise MissingError(
        "found no nvcc, needed to compile; put one on PATH, or `pip install "
        f"'cuda-toolkit[nvcc,crt,nvvm,cudart,cccl]=={torch.version.cuda}.*'`"
    )


def runtime_library(toolkit: Path, build: Path) -> Path:
    """Returns a folder with libcudart.so: torch's loader links with -lcudart.

    A Python package has libcudart.so.13 alone, which -lcudart does not find.
    """
    for folder in (toolkit / "lib64", toolkit / "lib"):
        if (folder / "libcudart.so").exists():
            return folder
        for library in sorted(folder.glob("libcudart.so.*")):
            link = build / "libcudart.so"
            link.unlink(missing_ok=True)
            link.symlink_to(library)
            return build
    raise MissingError(f"found no libcudart.so in {toolkit}, needed to link")


def reference(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Returns one head's output in float64, and how far a kernel's may be from it.

    The kernels round the weights to bf16, and in the end the output: each time by at most 2⁻⁸ of
    Σ weight · |v|. What float32 adds (sums of 64 products, exp, a rescaling of every 16 or 64 keys)
    is small beside that: a twentieth is left for it.
    """
    q, k, v = (x.double() for x in (q, k, v))
    weights = torch.softmax(q @ k.mT / 8, dim=-1)
    return weights @ v, 1.05 * 2**-7 * (weights @ v.abs())


def milliseconds(function, *arguments: Tensor) -> float:
    """Returns how long a call takes on the GPU: the median of 20, after 3 to warm up."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(23)]
    for start, end in events:
        start.record()
        function(*arguments)
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in events[3:])[10]


def demo(extension: ModuleType, heads: int, length: int) -> tuple[bool, list[str]]:
    """Runs the kernels; returns whether they are right, and how far from float64 and how fast."""
    torch.manual_seed(0)
    shape = (heads, length, 64)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    kernels = {
        "attention.cu": extension.attention,
        "flash_attention_2.cu": extension.flash_attention_2,
    }
    lines = [f"attention of {shape} on {torch.cuda.get_device_name()}"]
    good = True
    for name, kernel in kernels.items():
        worst = difference(kernel, q, k, v)
        good = good and worst <= 1.0
        lines.append(
            f"{name:<20} {'right' if worst <= 1.0 else 'WRONG'}: largest difference from float64 "
            f"{worst:.2f} of what rounding to bf16 allows"
        )
    tflops = 4 * heads * length**2 * 64 / 1e9
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls = {**kernels, "torch's own": lambda *x: sdpa(*(t[None] for t in x))}
    for name, call in calls.items():
        time = milliseconds(call, q, k, v)
        rate = tflops / time
        lines.append(f"{name:<20} {time:8.3f} ms {rate:8.1f} TFLOP/s  {'█' * round(rate / 16)}")
    return good, lines


def difference(kernel: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> float:
    """Returns how far a kernel is from float64, of what it may be."""
    o, worst = kernel(q, k, v), 0.0
    for head in range(len(q)):  # one at a time: float64 scores are large
        expected, bound = reference(q[head], k[head], v[head])
        worst = max(worst, float(((o[head] - expected).abs() / bound).nan_to_num(torch.inf).max()))
    return worst


def draw(lines: list[str], path: Path) -> None:
    """Writes lines as a picture of a terminal."""
    from rich.console import Console

    from demos.models.command_line import picture

    console = Console(record=True, file=io.StringIO(), width=100, highlight=False)
    console.print("\n".join(lines), markup=False)
    picture(console, path, "python -m demos.custom_kernel")


if __name__ == "__main__":
    sys.exit(main())
