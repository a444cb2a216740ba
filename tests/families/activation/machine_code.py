"""What tests/ptxas looks for in the machine code of the activations' kernels."""

import re

SOURCES = ("csrc/kernels/activation/swiglu",)  # with each kernel in some of its forms
DEPENDENT = ("activation_forward", "activation_backward")  # launched programmatically
GENERIC_FORMS = ("csrc/kernels/activation/gelu.cu",)  # compiled for other architectures too
# As symbols name the kernels of aligned rows. In how many places a kernel loads a row, and by how
# many loads a thread: two of each input.
ROW_LOADS = {
    re.compile(r"\d\dactivation_(for|back)wardI.*Lb1EEEEEv"): (
        lambda found: (1, 2 * (2 if found[1] == "for" else 3))
    ),
}
