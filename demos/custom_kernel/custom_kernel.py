"""Compiles kernels of its own, written on kittens, and checks them against float64 and peers.

    python -m demos.custom_kernel
    python -m demos.custom_kernel --heads 32 --length 8192

A ladder of attentions, a product of matrices and a linear attention; torch's own extension loader
compiles them for the GPU that is there, those for sm_90a alone only for that.

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

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from kernel_cases import Case, all_cases
from torch import Tensor

import thunderkittens

FOLDER = Path(__file__).resolve().parent
SOURCES = ("binding.cpp", "attention.cu", "flash_attention_2.cu")
SM90A_SOURCES = (
    "load_store_compute_finish.cu",
    "flash_attention_3.cu",
    "linear_attention.cu",
    "gemm.cu",
)


class MissingError(Exception):
    """What this machine lacks, in one sentence."""


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="custom_kernel", description=__doc__.split("\n")[0])
    parser.add_argument("--heads", type=int, default=16, help="1 to 65535 (default: 16)")
    parser.add_argument("--length", type=int, default=2048, help="a multiple of 64 (default: 2048)")
    parser.add_argument(
        "--size", type=int, default=8192, help="of the product, a multiple of 8 (default: 8192)"
    )
    parser.add_argument("--svg", type=Path, help="a file: what is printed, as a picture")
    options = parser.parse_args(arguments)
    if not 1 <= options.heads <= 65535:
        parser.error(f"--heads must be 1 to 65535, got {options.heads}")
    if not 64 <= options.length <= 1 << 24 or options.length % 64:
        parser.error(f"--length must be a multiple of 64 from 64 to 2^24, got {options.length}")
    if not 8 <= options.size <= 1 << 16 or options.size % 8:
        parser.error(f"--size must be a multiple of 8 from 8 to 65536, got {options.size}")
    try:
        extension = compile_extension()
    except MissingError as error:
        print(f"custom_kernel: {error}", file=sys.stderr)
        return 2
    good, lines = demo(extension, options.heads, options.length, options.size)
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

    root = os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root()
    build = Path(root) / f"thunderkittens_kernels_{torch.__version__}"
    build.mkdir(parents=True, exist_ok=True)
    number = f"{major}{minor}" + ("a" if major == 9 else "")
    sources = (*SOURCES, *SM90A_SOURCES) if major == 9 else SOURCES
    defines = ["-DDEMO_SM90A"] if major == 9 else []
    return load(
        name="thunderkittens_kernels",
        sources=[str(FOLDER / name) for name in sources],
        extra_include_paths=[thunderkittens.include_dir()],
        extra_cflags=["-std=c++20", "-O2", *defines],
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


def milliseconds(function, *arguments: Tensor) -> float:
    """Returns how long a call takes on the GPU: the median of 20, after 3 to warm up."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(23)]
    for start, end in events:
        start.record()
        function(*arguments)
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in events[3:])[10]


def demo(extension: ModuleType, heads: int, length: int, size: int) -> tuple[bool, list[str]]:
    """Runs the kernels; returns whether they are right, and how far from float64 and how fast."""
    lines, good = [f"on {torch.cuda.get_device_name()}"], True
    for case in all_cases(extension, heads, length, size):
        lines += ["", case.title]
        for name, kernel in case.kernels.items():
            worst = difference(case, kernel)
            good = good and worst <= 1.0
            lines.append(
                f"{name:<28} {'right' if worst <= 1.0 else 'WRONG'}: largest difference from "
                f"float64 {worst:.2f} of what rounding allows"
            )
        for name, call in {**case.kernels, **case.peers}.items():
            try:
                time = milliseconds(call, *case.tensors)
            except RuntimeError as error:
                if name in case.kernels:
                    raise
                lines.append(f"{name:<28} not here: {str(error).splitlines()[0]}")
                continue
            lines.append(f"{name:<28} {time:9.3f} ms {case.work / time / 1e9:8.2f} {case.unit}")
    return good, lines


def difference(case: Case, kernel: Callable[..., Tensor]) -> float:
    """Returns how far a kernel is from float64, of what it may be."""
    result, worst = kernel(*case.tensors), 0.0
    for place, expected, bound in case.reference(*case.tensors):
        error = (result[place] - expected).abs()
        ratio = torch.where(error == 0, 0.0, error / bound)  # both are 0 where v is
        worst = max(worst, float(ratio.nan_to_num(torch.inf).max()))
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
