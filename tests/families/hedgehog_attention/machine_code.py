"""What tests/ptxas looks for in the machine code of hedgehog_attention's kernels."""

SOURCES = (
    "csrc/kernels/hedgehog_attention/hedgehog_attention",
    "csrc/kernels/hedgehog_attention/hedgehog_attention_backward",
    "csrc/kernels/hedgehog_attention/hedgehog_attention_sm90",
    "csrc/kernels/hedgehog_attention/hedgehog_attention_backward_sm90",
    "csrc/kernels/hedgehog_attention/hedgehog_attention_step",
)
DEPENDENT = ("hedgehog_attention_step_vectors",)  # launched programmatically
# Compiled for other architectures, too.
GENERIC_FORMS = (
    "tests/families/hedgehog_attention/programs/hedgehog_attention_generic_forms.cu",
    "csrc/kernels/hedgehog_attention/hedgehog_attention_step.cu",
)
# Bytes of spill loads, at most: six words of the pass of queries and ten of that of keys, whose
# products, state and gradient of the map are in 128 registers at the same time.
SPILLS = {
    "hedgehog_attention_gradient<hedgehog_gradient_config<bf16, 1, true>>": 24,
    "hedgehog_attention_gradient<hedgehog_gradient_config<half, 1, true>>": 24,
    "hedgehog_attention_gradient<hedgehog_gradient_config<bf16, 2, true>>": 40,
    "hedgehog_attention_gradient<hedgehog_gradient_config<half, 2, true>>": 32,
}
# The same of the generic kernel, for other architectures: four words of the pass of queries, whose
# scores and logits are in registers at the same time.
GENERIC_SPILLS = {
    (
        "sm_120",
        "hedgehog_attention_generic_gradient<hedgehog_generic_gradient_config<bf16, 1>>",
    ): 16,
}
# Of a kernel with bulk or tensor copies, the member of its shared memory from which on none writes.
ORDINARY_FROM = {
    "hedgehog_attention_forward": "features",
    "hedgehog_attention_gradient": "features",
}
