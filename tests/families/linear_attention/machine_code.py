"""What tests/ptxas looks for in the machine code of linear_attention's kernel."""

SOURCES = ("csrc/kernels/linear_attention/linear_attention_sm90",)
DEPENDENT = ()  # launched programmatically
