"""Mutation of mamba2's own kernels: targets, programs, and mutants that no run can notice."""

from tests.mutation.listing import TUNING, Listed
from tests.mutation.program import Program

PROGRAM = Program("mamba2", "mamba2")
GATE_GRADIENTS = Program("mamba2", "mamba2_gate_gradients")
STEPS = "linear_attention/linear_attention_steps.cuh"  # whose numbers the gates leave as they are
TARGETS = {
    f"kernels/{STEPS}": (PROGRAM,),
    "kernels/mamba2/mamba2_gates.cuh": (PROGRAM,),
    "kernels/mamba2/mamba2_gate_gradients.cuh": (GATE_GRADIENTS,),
    "kernels/mamba2/mamba2_step.cuh": (PROGRAM,),
}
LEFT_OUT = {"kernels/mamba2/mamba2_gate_gradients.cuh": ("min_blocks",)}
HOST_SIDE = (
    "kernels/mamba2/mamba2_gates_launch.cuh",
    "kernels/mamba2/mamba2_gate_gradients_launch.cuh",
    "kernels/mamba2/mamba2_step_launch.cuh",
)

OF_GRADIENTS = "mamba2/mamba2_gate_gradients.cuh"
OF_GATES = "mamba2/mamba2_gates.cuh"

LISTED: tuple[Listed, ...] = (
    Listed(OF_GRADIENTS, "mamba2_gate_gradients_config", "start (1|2)/2 double", TUNING),
    Listed(OF_GRADIENTS, "gate_run::gate_run", "branch less", "no token is there, or fewer"),
    Listed(
        OF_GRADIENTS, "mamba2_gate_gradients", "term more", "24 leads to the other runs, as 16 does"
    ),
    Listed(OF_GATES, "mamba2_gates_config", "start (1|2)/2 double", TUNING),
    Listed(OF_GATES, "mamba2_gates_shared", "length less", "more conflicts of banks"),
    Listed(OF_GATES, "tokens_of_sequences", "argument (1|3|4)/4 less", "no token is below 0"),
    Listed(OF_GATES, "mamba2_gates", "bound 6/10 shifted", "what the next tile clears, too"),
    Listed(
        STEPS,
        "softplus",
        "term 2/3 double",
        "the last term of the series, below a rounding of the sum",
    ),
    Listed(STEPS, "softplus", "bound 2/4 shifted", "e is 1 of 0 and of −0"),
    Listed("mamba2_step.cuh", "mamba2_step", "limit 1/4 more", "a slot of 0 is 0 either way"),
)
