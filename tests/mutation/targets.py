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
    Program("attention.cu", "attention_check.cu", (f"CONFIGS={which}",)) for which in (0, 1)
)
BLOCKS = Program("attention_blocks.cu", "attention_blocks_check.cu")
FORWARD = Program("layer_norm_forward.cu", "layer_norm_forward_check.cu")
BACKWARD = Program("layer_norm_backward.cu", "layer_norm_backward_check.cu")

# Device code, as #include has it → the programs that run it, those first that find the most.
TARGETS: dict[str, tuple[Program, ...]] = {
    "kernels/attention/attention_consumer.cuh": ATTENTION,
    "kernels/attention/attention_forward.cuh": ATTENTION,
    "kernels/attention/attention_producer.cuh": ATTENTION,
    "kernels/attention/attention_tile.cuh": (BLOCKS, *ATTENTION),
    "kernels/norm/layer_norm_forward.cuh": (FORWARD,),
    "kernels/norm/layer_norm_backward.cuh": (BACKWARD,),
    "kernels/norm/row.cuh": (FORWARD, BACKWARD),
}
# What the host alone reads: it decides how many threads and blocks there are.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "kernels/norm/layer_norm_forward.cuh": (
        "max_warps",
        "max_threads",
        "max_width",
        "threads_per_multiprocessor",
        "min_blocks",
        "max_blocks",
    ),
    "kernels/norm/layer_norm_backward.cuh": ("max_threads",),
}
# Sources of kernels that are run on the host alone.
HOST_SIDE = ("kernels/attention/attention_launch.cuh",)


def programs() -> list[Program]:
    """All of them, once."""
    return list(dict.fromkeys(program for some in TARGETS.values() for program in some))


def text(file: str) -> str:
    """A target's source."""
    return (ROOT / "csrc" / file).read_text()
