"""What tests/ptxas looks for in the machine code of AdamW's kernels."""

SOURCES = ("csrc/kernels/adamw/adamw",)
DEPENDENT = ("adamw_norm", "adamw_update")  # launched programmatically
