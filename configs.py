"""What there is to build: one record per kernel family. Data only.

To add a family, add a record to `KERNELS`: its sources are found by name in
`csrc/kernels/<name>/` (`*.cpp` always, `*.cu` where the record is selected and a CUDA
compiler is there). To leave a family's CUDA code out, write `selected=False`; for one build
only, set THUNDERKITTENS_KERNELS or THUNDERKITTENS_ARCHITECTURES (comma-separated names).
"""

from dataclasses import dataclass

ALL_ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_103", "sm_120")


@dataclass(frozen=True)
class Kernel:
    """One family of kernels.

    Attributes:
        name: The family: its folder under csrc/kernels, its test, its benchmark.
        ops: Public functions, by the name they have in Python and in torch's op registry.
        architectures: Where its CUDA code can run; empty before there is any. A file `*_sm90.cu`
            is for sm_90a alone.
        selected: Whether its CUDA code is built.
        uses: The families whose kernels it launches too, and whose headers it may include.
    """

    name: str
    ops: tuple[str, ...]
    architectures: tuple[str, ...] = ALL_ARCHITECTURES
    selected: bool = True
    uses: tuple[str, ...] = ()


KERNELS: tuple[Kernel, ...] = (
    Kernel(name="norm", ops=("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm")),
    Kernel(name="activation", ops=("swiglu", "geglu", "gelu")),
    Kernel(name="attention", ops=("attention", "attention_qkvpacked")),
    Kernel(name="attention_decode", ops=("attention_decode", "cache_append")),
    Kernel(name="cross_entropy", ops=("cross_entropy", "linear_cross_entropy")),
    Kernel(name="rotary", ops=("rotary",)),
    Kernel(name="adamw", ops=("adamw",)),
    Kernel(name="linear_attention", ops=("linear_attention", "linear_attention_step")),
    Kernel(name="mamba2", ops=("mamba2", "mamba2_step"), uses=("linear_attention",)),
    Kernel(name="based_attention", ops=("based_attention", "based_attention_step")),
    Kernel(name="hedgehog_attention", ops=("hedgehog_attention", "hedgehog_attention_step")),
    Kernel(name="linear", ops=("linear", "quantized_linear")),
    Kernel(name="mlp", ops=("mlp",), uses=("activation",)),
)

DEMO_KERNELS: tuple[str, ...] = (
    "norm",
    "activation",
    "attention",
    "attention_decode",
    "rotary",
    "linear",
    "mlp",
)
"""The families that demos/generate calls: what `make demo` builds where nothing is built yet."""

ARCHITECTURES: tuple[str, ...] = ("sm_90a",)
"""The GPU architectures to build for, of `sm_80`, `sm_86`, `sm_89`, `sm_90a`, `sm_100`, `sm_103`,
`sm_120`, or `native`: of the GPUs of the machine that builds."""

CXX_FLAGS: tuple[str, ...] = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-missing-field-initializers",  # `{.width = 3}` leaves the rest at their defaults
)

NVCC_FLAGS: tuple[str, ...] = (
    "-std=c++20",
    "-O3",
    "-lineinfo",
    "--expt-relaxed-constexpr",
    "-Xcompiler",
    "-fPIC,-fvisibility=hidden",
)

PTXAS_FLAGS: tuple[str, ...] = ("-Xptxas", "-v")
"""ptxas reports registers, spills and stack frames; the build keeps what it says."""
