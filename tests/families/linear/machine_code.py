"""What tests/ptxas looks for in the machine code of linear's kernels."""

SOURCES = tuple(
    f"csrc/kernels/linear/{name}"
    for name in ("linear", "linear_sm90", "linear_rows_sm90", "quantized_linear")
)
DEPENDENT = (
    "linear",
    "linear_rows",
    "linear_generic",
    "quantized_linear",
)  # launched programmatically
# Forms, as their symbols are found, that read what they were promised to be constant before the
# wait, and by what: ends of rows by loads.
BEFORE_THE_WAIT = {
    "of_constant_weight.*13linear_config": ("UTMALDG",),
    "linear_rows_config": ("UTMALDG",),  # where the call promises it
    "of_constant_weight.*linear_generic_config": ("LDGSTS", "LDG"),
    "of_constant_weight.*linear_(e4m3|int4)": ("LDGSTS",),
}
ORDINARY_FROM = {
    "linear": "sums",
    "linear_rows": "sums",
}  # of shared memory: from here on copies write nothing
# Compiled for other architectures, too.
GENERIC_FORMS = ("csrc/kernels/linear/linear.cu", "csrc/kernels/linear/quantized_linear.cu")
