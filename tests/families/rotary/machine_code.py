"""What tests/ptxas looks for in the machine code of rotary's kernel."""

SOURCES = ("csrc/kernels/rotary/rotary",)
DEPENDENT = ("rotary",)  # launched programmatically
