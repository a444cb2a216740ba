"""What tests/ptxas looks for in the machine code of linear's kernels."""

SOURCES = tuple(
    f"csrc/kernels/linear/{name}" for name in ("linear", "linear_sm90", "quantized_linear")
)
DEPENDENT = ("linear", "linear_generic")  # launched programmatically
ORDINARY_FROM = {"linear": "sums"}  # of shared memory: from here on copies write nothing
# Compiled for other architectures, too.
GENERIC_FORMS = ("csrc/kernels/linear/linear.cu", "csrc/kernels/linear/quantized_linear.cu")
