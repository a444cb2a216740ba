"""What tests/ptxas looks for in the machine code of attention_decode's kernels."""

SOURCES = (
    "csrc/kernels/attention_decode/attention_decode",
    "csrc/kernels/attention_decode/cache_append",
)
DEPENDENT = ("attention_decode", "attention_decode_combine", "cache_append")  # programmatically
