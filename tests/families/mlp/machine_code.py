"""What tests/ptxas looks for in the machine code of mlp's kernels."""

SOURCES = tuple(
    f"csrc/kernels/mlp/{name}"
    for name in ("column_sums", "linear_gelu_sm90", "linear_gelu_backward_sm90")
)
DEPENDENT = ("add_parts",)  # launched programmatically
ORDINARY_FROM = {"linear_gelu": "bias"}  # of shared memory: from here on copies write nothing
GENERIC_FORMS = ("csrc/kernels/mlp/column_sums.cu",)  # compiled for other architectures, too
