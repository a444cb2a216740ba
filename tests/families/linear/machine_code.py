"""What tests/ptxas looks for in the machine code of linear's kernels."""

SOURCES = ("csrc/kernels/linear/linear", "csrc/kernels/linear/linear_sm90")
DEPENDENT = ("linear", "linear_generic")  # launched programmatically
ORDINARY_FROM = {"linear": "sums"}  # of shared memory: from here on copies write nothing
GENERIC_FORMS = ("csrc/kernels/linear/linear.cu",)  # compiled for other architectures, too
