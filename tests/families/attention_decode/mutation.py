"""Mutation of attention_decode's kernels: targets, programs, mutants that no run can notice."""

from tests.mutation.listing import Listed
from tests.mutation.program import Program

PROGRAM = Program("attention_decode", "attention_decode")
_FOLDER = "kernels/attention_decode"
TARGETS = {
    f"{_FOLDER}/attention_decode.cuh": (PROGRAM,),
    f"{_FOLDER}/attention_decode_combine.cuh": (PROGRAM,),
    f"{_FOLDER}/attention_decode_work.cuh": (PROGRAM,),
    f"{_FOLDER}/cache_append.cuh": (PROGRAM,),
}
LEFT_OUT: dict[str, tuple[str, ...]] = {}
HOST_SIDE = (f"{_FOLDER}/attention_decode_launch.cuh", f"{_FOLDER}/cache_append_launch.cuh")

LISTED: tuple[Listed, ...] = ()
