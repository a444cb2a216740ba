"""What tests/ptxas looks for in the machine code of attention's kernel."""

SOURCES = ("csrc/kernels/attention/attention_sm90",)
DEPENDENT = ()  # nothing is launched programmatically
# Of a kernel with bulk or tensor copies, the member of its shared memory from which on none writes.
ORDINARY_FROM = {"attention_forward": "items"}
