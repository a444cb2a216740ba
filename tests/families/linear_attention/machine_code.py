"""What tests/ptxas looks for in the machine code of linear_attention's kernels."""

SOURCES = (
    "csrc/kernels/linear_attention/linear_attention",
    "csrc/kernels/linear_attention/linear_attention_sm90",
    "csrc/kernels/linear_attention/linear_attention_step",
    "csrc/kernels/linear_attention/linear_attention_decay_gradient",
)
DEPENDENT = (
    "linear_attention_step",
    "linear_attention_decay_gradient",
    "linear_attention_part_states",
    "linear_attention_warp_specialized",
)  # launched programmatically
# Where the launch in front has found the states of parts, which alone are waited for.
BEFORE_THE_WAIT = {"linear_attention_warp_specialized": ("UTMALDG", "LDGSTS", "LDG")}
GENERIC_FORMS = (
    "tests/families/linear_attention/programs/linear_attention_generic_forms.cu",
    "csrc/kernels/linear_attention/linear_attention_step.cu",
    "csrc/kernels/linear_attention/linear_attention_decay_gradient.cu",
)  # compiled for other architectures too
# Of shared memory: from here on copies write nothing.
ORDINARY_FROM = {
    "linear_attention_chunkwise": "decays",
    "linear_attention_part_states": "to_end",
    "linear_attention_warp_specialized": "o",
}
# And from here on those alone that bring what is dotted.
COPIED_APART = {"linear_attention_chunkwise": ("o",)}
