"""What tests/ptxas looks for in the machine code of rotary's kernel."""

SOURCES = ("csrc/kernels/rotary/rotary",)
DEPENDENT = ("rotary",)  # launched programmatically
GENERIC_FORMS = ("csrc/kernels/rotary/rotary.cu",)  # compiled for other architectures too
