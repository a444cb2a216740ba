"""What tests/ptxas looks for in the machine code of based_attention's kernel."""

SOURCES = ("csrc/kernels/based_attention/based_attention_sm90",)
DEPENDENT = ()  # launched programmatically
# Bytes of spill loads, at most, of the passes whose accumulators fill their registers.
SPILLS: dict[str, int] = {}
