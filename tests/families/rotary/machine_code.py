"""What tests/ptxas looks for in the machine code of rotary's kernel."""

SOURCE = "csrc/kernels/rotary/rotary"
DEPENDENT = ("rotary",)  # launched programmatically
