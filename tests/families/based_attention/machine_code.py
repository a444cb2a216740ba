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
# Bytes of spill loads, at most, of the generic kernel for other architectures: six words are
# stored.
GENERIC_SPILLS = {
    (
        "sm_120",
        "based_attention_generic<based_attention_generic_config<bf16, 2, true>>",
    ): 52,
}
