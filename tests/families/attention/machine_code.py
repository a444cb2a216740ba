"""What tests/ptxas looks for in the machine code of attention's kernels."""

SOURCES = (
    "csrc/kernels/attention/attention_sm90",
    "csrc/kernels/attention/attention_generic",
    "csrc/kernels/attention/attention_backward_sm90",
    "csrc/kernels/attention/attention_backward_generic",
)
# Launched programmatically.
DEPENDENT = (
    "attention_backward",
    "attention_backward_generic",
    "attention_backward_starts",
    "attention_backward_bounds",
    "attention_backward_prepare",
    "attention_backward_delta",
    "attention_backward_dq",
    "attention_backward_finish",
    "attention_backward_finish_strided",
    "attention_backward_sinks",
)
# Of a kernel with bulk or tensor copies, the member of its shared memory from which on none writes.
ORDINARY_FROM = {
    "attention_forward": "items",
    "attention_backward": "tile",
    "attention_backward_dq": "tile",
}
# Bytes of spill loads, at most, of kernels whose accumulators fill their registers: of head
# dimension, with a softcap or not, and where dq is added up or not.
_SPILLS = {
    (64, "false", "true"): 52,
    (64, "true", "true"): 36,
    (80, "false", "false"): 4,
    (80, "false", "true"): 4,
    (128, "false", "false"): 4,
    (256, "false", "false"): 16,
    (256, "true", "false"): 16,
}
SPILLS = {
    f"attention_backward<attention_backward_config<{dtype}, {width}, {capped}, {adds}, {width}>>": n
    for (width, capped, adds), n in _SPILLS.items()
    for dtype in ("bf16", "half")
} | {
    f"attention_backward_dq<attention_backward_dq_config<{dtype}, 256, {capped}, 256>>": 20
    for capped in ("false", "true")
    for dtype in ("bf16", "half")
}
# Compiled for other architectures, too.
GENERIC_FORMS = (
    "tests/families/attention/programs/attention_generic_forms.cu",
    "tests/families/attention/programs/attention_backward_generic_forms.cu",
)
