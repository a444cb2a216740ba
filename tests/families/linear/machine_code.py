"""What tests/ptxas looks for in the machine code of linear's kernel."""

SOURCES = ("csrc/kernels/linear/linear_sm90",)
DEPENDENT = ("linear",)  # launched programmatically
ORDINARY_FROM = {"linear": "sums"}  # of shared memory: from here on copies write nothing
