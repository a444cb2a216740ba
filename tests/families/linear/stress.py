"""What is repeated on a GPU of linear: products of many steps, in one pass and in several."""

from tests.families.linear import cases, quantized_cases
from tests.families.linear.cases import FP16, Case
from tests.families.linear.quantized_cases import QuantizedCase
from tests.stress.problem import Stress

SOME = (
    Case((1,), 4096, 4096, bias=True),
    Case((16,), 4096, 28672, FP16),
    Case((7,), 4096, 12288, activation="swiglu"),
    Case((16,), 14336, 4096, residual=True),
    Case((9,), 4096, 6144, norm=1e-5),
    Case((3,), 4096, 12288, constant=True),
    Case((24,), 4096, 14336, activation="swiglu", norm=1e-5),
    Case((64,), 4096, 128256, constant=True),
    Case((16,), 4096, 28672, generic=True),
    Case((7,), 4096, 12288, FP16, activation="swiglu", generic=True),
    Case((9,), 14336, 4096, norm=1e-5, generic=True),
    Case((3,), 4096, 12288, generic=True, constant=True),
)
QUANTIZED = (
    QuantizedCase((1,), 4096, 4096),
    QuantizedCase((16,), 4096, 12288, activation="swiglu"),
    QuantizedCase((1,), 14336, 4096, 128, FP16),
    QuantizedCase((9,), 4096, 6144, 64, zero=True, norm=1e-5),
    QuantizedCase((16,), 4096, 28672, 128, zero=True, activation="swiglu"),
    QuantizedCase((3,), 4096, 12288, 128, constant=True),
)


def kernel_of(case: Case) -> str:
    """Its name."""
    return "linear_generic" if case.generic else cases.launched(case)


CASES = (
    *(Stress(kernel_of(each), each, cases) for each in SOME),
    *(Stress("quantized_linear", each, quantized_cases) for each in QUANTIZED),
)
