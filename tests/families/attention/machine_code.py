"""What tests/ptxas looks for in the machine code of attention's kernels."""

SOURCES = (
    "csrc/kernels/attention/attention_sm90",
    "csrc/kernels/attention/attention_backward_sm90",
)
# Launched programmatically.
DEPENDENT = (
    "attention_backward",
    "attention_backward_bounds",
    "attention_backward_prepare",
    "attention_backward_finish",
    "attention_backward_sinks",
)
# Of a kernel with bulk or tensor copies, the member of its shared memory from which on none writes.
ORDINARY_FROM = {"attention_forward": "items", "attention_backward": "tile"}
