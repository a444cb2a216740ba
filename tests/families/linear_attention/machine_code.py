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
)  # launched programmatically
GENERIC_FORMS = (
    "tests/families/linear_attention/programs/linear_attention_generic_forms.cu",
    "csrc/kernels/linear_attention/linear_attention_step.cu",
    "csrc/kernels/linear_attention/linear_attention_decay_gradient.cu",
)  # compiled for other architectures too
# Of shared memory: from here on copies write nothing.
ORDINARY_FROM = {"linear_attention_chunkwise": "decays"}
# And from here on those alone that bring what is dotted.
COPIED_APART = {"linear_attention_chunkwise": ("o",)}
# Bytes of spill loads, at most: seven words of fp16's narrow heads, whose scores are weighted the
# long way with three blocks on a multiprocessor.
SPILLS = {
    "linear_attention_chunkwise<linear_attention_config<half, 64, 1, false, false, true>>": 28,
    "linear_attention_chunkwise<linear_attention_config<half, 64, 1, true, false, true>>": 28,
}
