"""What tests/ptxas looks for in the machine code of based_attention's kernel."""

SOURCES = ("csrc/kernels/based_attention/based_attention_sm90",)
DEPENDENT = ()  # launched programmatically
# Bytes of spill loads, at most, of the passes that give gradients, whose accumulators fill their
# registers; by dtype, and pass (dq is 1, dk with dv 2).
_SPILLS = {("bf16", 1): 36, ("half", 1): 44, ("bf16", 2): 20, ("half", 2): 20}
SPILLS = {
    f"based_attention<based_attention_config<{dtype}, {number}, true>>": most
    for (dtype, number), most in _SPILLS.items()
}
