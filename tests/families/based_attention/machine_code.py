"""What tests/ptxas looks for in the machine code of based_attention's kernels."""

SOURCES = (
    "csrc/kernels/based_attention/based_attention",
    "csrc/kernels/based_attention/based_attention_sm90",
    "csrc/kernels/based_attention/based_attention_step",
)
DEPENDENT = ("based_attention_step",)  # launched programmatically
GENERIC_FORMS = (
    "tests/families/based_attention/programs/based_attention_generic_forms.cu",
    "csrc/kernels/based_attention/based_attention_step.cu",
)  # compiled for other architectures too
# Of shared memory: from here on copies write nothing.
ORDINARY_FROM = {"based_attention": "o"}
# Bytes of spill loads, at most, of the passes that give gradients, whose accumulators fill their
# registers; by dtype, and pass (dq is 1, dk with dv 2).
_SPILLS = {("bf16", 1): 36, ("half", 1): 44, ("bf16", 2): 20, ("half", 2): 20}
SPILLS = {
    f"based_attention<based_attention_config<{dtype}, {number}, true>>": most
    for (dtype, number), most in _SPILLS.items()
}
# In these passes ptxas has too few registers to keep products under way side by side (C7511).
SERIALISED = tuple(SPILLS)
# The same of the generic kernel, for other architectures: six words are stored.
GENERIC_SPILLS = {
    (
        "sm_120",
        "based_attention_generic<based_attention_generic_config<bf16, 2, true>>",
    ): 52,
}
