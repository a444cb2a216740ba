"""Compiles device code with the oldest CUDA that the headers promise to work with.

The Python packages of that CUDA hold no nvcc, but they hold NVRTC, which has the same front end and
the same ptxas. It knows no host headers, so those of the standard library come from libcu++.

    python tests/ptxas/oldest_cuda.py ARCHITECTURE FLAGS… < source    # machine code to stdout
"""

import ctypes
import importlib.metadata
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from build_tools import settings
from build_tools.settings import ROOT

PACKAGES = ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12", "nvidia-cuda-cccl-cu12")

_LIBCUDACXX = ("bit", "concepts", "cstddef", "cstdint", "type_traits", "utility")
_USING = "namespace std { using namespace cuda::std; }\n"
HEADERS = {
    **{name: f"#pragma once\n#include <cuda/std/{name}>\n{_USING}" for name in _LIBCUDACXX},
    "cstring": "#pragma once\nnamespace std { using ::memcpy; }\n",
    # libcu++'s own is not constexpr here, as that of every host compiler is.
    "limits": (
        "#pragma once\nnamespace std { template <class T> struct numeric_limits;\n"
        "template <> struct numeric_limits<float> {\n"
        "static constexpr float infinity() { return __builtin_bit_cast(float, 0x7f800000); } }; }\n"
    ),
    "stdint.h": "#include <cuda/std/cstdint>\n",
    # The whole of it declares host functions.
    "cuda.h": "#pragma once\nstruct alignas(64) CUtensorMap { unsigned long long opaque[16]; };\n",
    **dict.fromkeys(("cmath", "new"), ""),  # NVRTC declares it by itself
    # Host code, of which a kernel's headers need the declarations.
    "kittens/host/tensor_map.cuh": (
        "#pragma once\n#include <kittens/arch/tma.cuh>\n#include <kittens/host/dtype.h>\n"
        "namespace kittens::host { struct tensor_map_request {"
        " const void* data; dtype kind; int rank; int64_t extent[5], stride_bytes[4];"
        " int box[5], swizzle_bytes; };\n"
        "template <class T> inline constexpr dtype dtype_of = dtype::float32;\n"
        "void check_columns(int, int64_t);\n"
        "arch::tensor_map encode_tensor_map(const tensor_map_request&); }\n"
    ),
}


def missing() -> str:
    """Returns why it cannot be used here, or ""."""
    for package in PACKAGES:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return f"{package} is not installed (requirements/test.txt)"
        if tuple(map(int, version.split(".")[:2])) != settings.MINIMUM_CUDA:
            return f"{package} is {version}, needed that of the oldest CUDA"
    return ""


def compile_for(architecture: str, text: str, *flags: str) -> tuple[bytes, str]:
    """Compiles device code, in a process of its own: NVRTC sets the locale of the one it is in.

    Returns:
        The machine code, empty if there were errors, and what the compiler said.
    """
    command = [sys.executable, __file__, architecture, *flags]
    done = subprocess.run(command, input=text.encode(), capture_output=True)
    return done.stdout, done.stderr.decode(errors="replace")


def main(architecture: str, *flags: str) -> int:
    """Compiles standard input to standard output."""
    folder = _folder()
    # Found by NVRTC by its name alone.
    builtins = next((folder / "cuda_nvrtc/lib").glob("libnvrtc-builtins.so.*"))
    ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(folder / "cuda_nvrtc/lib/libnvrtc.so.12"))
    options = [
        "-std=c++20",
        f"-arch={architecture}",
        *(f"-I{ROOT / path}" for path in ("csrc/include", "csrc")),
        *(f"-I{folder / name / 'include'}" for name in ("cuda_runtime", "cuda_cccl")),
        *flags,
    ]
    program = ctypes.c_void_p()
    source, names, texts = sys.stdin.buffer.read(), _strings(HEADERS), _strings(HEADERS.values())
    count = len(HEADERS)
    create = nvrtc.nvrtcCreateProgram
    _check(create(ctypes.byref(program), source, b"program.cu", count, texts, names))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
    sys.stderr.buffer.write(_output(nvrtc, program, "ProgramLog").rstrip(b"\0"))
    if not failed:
        sys.stdout.buffer.write(_output(nvrtc, program, "CUBIN"))
    return failed


def _folder() -> Path:
    """Returns the folder `nvidia` of the packages."""
    return Path(importlib.metadata.distribution(PACKAGES[0]).locate_file("nvidia"))


def _output(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, data))
    return data.raw


def _strings(values) -> ctypes.Array:
    encoded = [value.encode() for value in values]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC: error {status}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
