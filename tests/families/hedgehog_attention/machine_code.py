"""What tests/ptxas looks for in the machine code of hedgehog_attention's kernel."""

SOURCES = ("csrc/kernels/hedgehog_attention/hedgehog_attention_sm90",)
DEPENDENT = ()  # launched programmatically
