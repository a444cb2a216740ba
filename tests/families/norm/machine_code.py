"""What tests/ptxas looks for in the machine code of the norms' kernels."""

import re

SOURCES = (
    "csrc/kernels/norm/norm_any",
    "csrc/kernels/norm/rms_norm",
)  # with each kernel in some of its forms
GENERIC_FORMS = tuple(f"{source}.cu" for source in SOURCES)  # compiled for other architectures too
# Bytes of spill loads there, at most: some words of kernels whose registers are bounded for Hopper.
_NARROW = "norm_forward_narrow<norm_forward_narrow_config<rms_norm_kind, "
_HEADS = "norm_forward<norm_forward_config<rms_norm_kind, bf16, 8, 16, 8, 40, true, 4, bf16, bf16>>"
_ANY = "norm_backward<norm_backward_config<any_norm_kind, any_element, 4, any_element>>"
GENERIC_SPILLS = {
    ("sm_80", f"{_NARROW}bf16, 8>>"): 16,
    ("sm_89", f"{_NARROW}bf16, 8>>"): 8,
    ("sm_120", f"{_NARROW}float, 4>>"): 4,
    ("sm_120", _HEADS): 8,
    ("sm_80", _ANY): 40,
    ("sm_89", _ANY): 40,
}
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
