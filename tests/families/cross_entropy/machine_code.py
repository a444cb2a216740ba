"""What tests/ptxas looks for in the machine code of cross_entropy's kernels."""

SOURCES = (
    "csrc/kernels/cross_entropy/cross_entropy",
    "csrc/kernels/cross_entropy/cross_entropy_sm90",
)
# Launched programmatically.
DEPENDENT = (
    "cross_entropy_count",
    "cross_entropy_rows",
    "cross_entropy_loss",
    "cross_entropy_two_pass",
    "cross_entropy_total",
    "cross_entropy_backward",
)
# Of a kernel with bulk or tensor copies, the member of its shared memory from which on none writes.
ORDINARY_FROM = {"cross_entropy_stream": "stages"}
# Compiled for other architectures, too.
GENERIC_FORMS = ("csrc/kernels/cross_entropy/cross_entropy.cu",)
# Losses, and targets of either type.
SUMS = {"cross_entropy_total": (16, 3), "cross_entropy_count": (8, 2)}
