"""What tests/ptxas looks for in the machine code of mamba2's kernels."""

SOURCES = (
    "csrc/kernels/mamba2/mamba2_gates",
    "csrc/kernels/mamba2/mamba2_gate_gradients",
    "csrc/kernels/mamba2/mamba2_step",
)
DEPENDENT = ("mamba2_step", "mamba2_gate_gradients")  # launched programmatically
GENERIC_FORMS = (
    "csrc/kernels/mamba2/mamba2_gates.cu",
    "csrc/kernels/mamba2/mamba2_step.cu",
    "csrc/kernels/mamba2/mamba2_gate_gradients.cu",
)  # compiled for other architectures too
