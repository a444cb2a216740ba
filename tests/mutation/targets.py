"""What is mutated, and the programs that have to notice it. Data only."""

from dataclasses import dataclass
from pathlib import Path

from build_tools.settings import ROOT

CASES = Path("tests/mutation/cases")


@dataclass(frozen=True)
class Program:
    """A test program of two sources.

    Attributes:
        kernel: The one that includes what is mutated; compiled for each mutant.
        check: The one that calls it and knows what should come out; compiled once.
        defines: Macros for both.
    """

    kernel: str
    check: str
    defines: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """E.g. `attention CONFIGS=0`."""
        return " ".join((Path(self.kernel).stem, *self.defines))


ATTENTION = tuple(
    Program("attention.cu", "attention_check.cu", (f"CONFIGS={which}",)) for which in (0, 2, 1)
)
BLOCKS = Program("attention_blocks.cu", "attention_blocks_check.cu")
SUMS = Program("cross_entropy_sums.cu", "cross_entropy_sums_check.cu")
ROWS = Program("cross_entropy_rows.cu", "cross_entropy_rows_check.cu")
LOSS = Program("cross_entropy_loss.cu", "cross_entropy_loss_check.cu")
STREAM = Program("cross_entropy_stream.cu", "cross_entropy_stream_check.cu")
CROSS_ENTROPY = (SUMS, ROWS, LOSS, STREAM)
ROTARY = Program("rotary.cu", "rotary_check.cu")
ACTIVATION = Program("activation.cu", "activation_check.cu")
FORWARD = Program("norm_forward.cu", "norm_forward_check.cu")
BACKWARD = tuple(
    Program("norm_backward.cu", "norm_backward_check.cu", (f"CONFIGS={which}",)) for which in (0, 1)
)
PIPELINED = Program("norm_backward.cu", "norm_backward_check.cu", ("CONFIGS=2",))
FEW = Program("norm_backward.cu", "norm_backward_check.cu", ("CONFIGS=3",))
NARROW = Program("norm_narrow.cu", "norm_narrow_check.cu")

# Device code, as #include has it → the programs that run it, those first that find the most.
TARGETS: dict[str, tuple[Program, ...]] = {
    "kernels/activation/elementwise.cuh": (ACTIVATION,),
    "kernels/activation/functions.cuh": (ACTIVATION,),
    "kernels/attention/attention_consumer.cuh": ATTENTION,
    "kernels/attention/attention_forward.cuh": ATTENTION,
    "kernels/attention/attention_producer.cuh": ATTENTION,
    "kernels/attention/attention_softmax.cuh": ATTENTION,
    "kernels/attention/attention_tile.cuh": (BLOCKS, *ATTENTION),
    "kernels/cross_entropy/cross_entropy_backward.cuh": (SUMS,),
    "kernels/cross_entropy/cross_entropy_far.cuh": (ROWS, STREAM, LOSS),
    "kernels/cross_entropy/cross_entropy_loss.cuh": (LOSS,),
    "kernels/cross_entropy/cross_entropy_reduce.cuh": (SUMS,),
    "kernels/cross_entropy/cross_entropy_row.cuh": CROSS_ENTROPY,
    "kernels/cross_entropy/cross_entropy_rows.cuh": (ROWS,),
    "kernels/cross_entropy/cross_entropy_stream.cuh": (STREAM,),
    "kernels/norm/any_element.cuh": (FORWARD, BACKWARD[0], NARROW, FEW),
    "kernels/norm/dropout.cuh": (FORWARD, NARROW, *BACKWARD),
    "kernels/norm/narrow_row.cuh": (NARROW,),
    "kernels/norm/norm_forward.cuh": (FORWARD, NARROW),
    "kernels/norm/norm_forward_any.cuh": (FORWARD,),
    "kernels/norm/norm_forward_long.cuh": (FORWARD,),
    "kernels/norm/norm_forward_narrow.cuh": (NARROW,),
    "kernels/norm/norm_backward.cuh": (*BACKWARD, NARROW, PIPELINED),
    "kernels/norm/norm_backward_few.cuh": (FEW,),
    "kernels/norm/norm_backward_long.cuh": (BACKWARD[0],),
    "kernels/norm/norm_backward_narrow.cuh": (NARROW,),
    "kernels/norm/norm_backward_pipelined.cuh": (PIPELINED,),
    "kernels/norm/norm_reduce.cuh": (*BACKWARD, FEW),
    "kernels/norm/row.cuh": (*BACKWARD, FORWARD, NARROW),
    "kernels/rotary/rotary.cuh": (ROTARY,),
}
# What the host alone reads: it decides how many threads and blocks there are.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "kernels/activation/elementwise.cuh": ("registers", "min_blocks"),
    "kernels/cross_entropy/cross_entropy_backward.cuh": ("threads", "min_blocks"),
    "kernels/cross_entropy/cross_entropy_loss.cuh": ("threads", "min_blocks"),
    "kernels/cross_entropy/cross_entropy_reduce.cuh": ("threads", "shared_bytes"),
    "kernels/cross_entropy/cross_entropy_rows.cuh": (
        "warp_columns",
        "max_warps",
        "max_threads",
        "min_blocks",
        "block_columns",
    ),
    "kernels/norm/norm_forward.cuh": ("max_threads", "max_width", "min_blocks"),
    "kernels/norm/norm_forward_any.cuh": ("max_threads",),
    "kernels/norm/norm_backward.cuh": ("max_threads",),
    "kernels/norm/norm_backward_narrow.cuh": ("min_blocks",),
    "kernels/rotary/rotary.cuh": ("max_threads", "min_blocks"),
}
# Sources of kernels that are run on the host alone.
HOST_SIDE = (
    "kernels/activation/elementwise_launch.cuh",
    "kernels/attention/attention_launch.cuh",
    "kernels/norm/norm_configs.cuh",
    "kernels/norm/norm_launch.cuh",
)


def programs() -> list[Program]:
    """All of them, once."""
    return list(dict.fromkeys(program for some in TARGETS.values() for program in some))


def text(file: str) -> str:
    """A target's source."""
    return (ROOT / "csrc" / file).read_text()
