"""What tests/ptxas looks for in the machine code of AdamW's kernels."""

SOURCES = ("csrc/kernels/adamw/adamw",)
COUNTED = ("adamw_norm", "adamw_update")  # which block ends last
DEPENDENT = ("adamw_norm", "adamw_update")  # launched programmatically
GENERIC_FORMS = ("csrc/kernels/adamw/adamw.cu",)  # compiled for other architectures too
