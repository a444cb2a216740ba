"""What tests/ptxas looks for in the machine code of attention_decode's kernels."""

SOURCES = (
    "csrc/kernels/attention_decode/attention_decode",
    "csrc/kernels/attention_decode/cache_append",
)
COUNTED = ("attention_decode",)  # its parts, with a fence on either side
DEPENDENT = ("attention_decode", "cache_append")  # programmatically
# Compiled for other architectures, too.
GENERIC_FORMS = (
    "tests/families/attention_decode/programs/attention_decode_forms.cu",
    "csrc/kernels/attention_decode/cache_append.cu",
)
