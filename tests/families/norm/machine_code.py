"""What tests/ptxas looks for in the machine code of the norms' kernels."""

import re

SOURCES = (
    "csrc/kernels/norm/norm_any",
    "csrc/kernels/norm/rms_norm",
)  # with each kernel in some of its forms
# Launched programmatically.
DEPENDENT = (
    "norm_forward",
    "norm_forward_any",
    "norm_forward_narrow",
    "norm_backward_few",
    "norm_backward_reduce",
)
# As symbols name the kernels that load whole rows: elements of an access, and of a lane. In how
# many places a kernel loads a row, and by how many loads a thread.
ROW_LOADS = {
    re.compile(r"\d\dnorm_forwardI\D*\d.*?Li(\d+)ELi(\d+)ELi\d+ELi\d+ELb[01]ELi\d+E.*EEEv"): (
        lambda found: (2, int(found[2]) // int(found[1]))  # whole rows, and others
    ),
    re.compile(r"\d\dnorm_forward_narrowI.*Li(\d+)EEEEEv"): (
        lambda found: (1, 8 if found[1] == "1" else 16 // int(found[1]))
    ),
}
