"""What tests/ptxas looks for in the machine code of linear_attention's kernels."""

SOURCES = (
    "csrc/kernels/linear_attention/linear_attention_sm90",
    "csrc/kernels/linear_attention/linear_attention_step",
)
DEPENDENT = ("linear_attention_step",)  # launched programmatically
