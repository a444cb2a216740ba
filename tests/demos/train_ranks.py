"""Ranks of demos/train_gpt that train in each way, and go on in the next one, or in the same.

python -m tests.demos.train_ranks TASK FOLDER DTYPE OPTIONS…, with torchrun's variables. DTYPE: what
the model computes in. TASK:

each     one run for each way, stopped after its first step and resumed in another way
same     two runs for each way: WAY-whole, and WAY-resumed, stopped after its first step
"""

import itertools
import sys

import torch
import torch.distributed as dist

from tests.demos.conftest import DEMOS
from tests.tools import ranks

sys.path[:0] = [str(DEMOS), str(DEMOS / "train_gpt")]


def main(task: str, folder: str, dtype: str, *options: str) -> None:
    """Runs them all, in one group."""
    import parallel
    import train

    train.dtype_of = lambda _device: getattr(torch, dtype)
    if dtype == "bfloat16":  # samples take longer than steps; float32 has some
        train.Run.sample = lambda _run: ""
    ranks.begin("cpu")
    pairs = itertools.pairwise((*parallel.WAYS, parallel.WAYS[0]))
    for way, other in pairs if task == "each" else zip(parallel.WAYS, parallel.WAYS, strict=True):
        out = ["--device", "cpu", "--out", f"{folder}/{way}" + "-resumed" * (task == "same")]
        assert train.main([*options, *out, "--parallel", way, "--minutes", "0"]) == 0
        dist.barrier()  # rank 0 has saved
        assert train.main([*out, "--parallel", other, "--resume"]) == 0
        if task == "same":
            whole = ["--device", "cpu", "--out", f"{folder}/{way}-whole"]
            assert train.main([*options, *whole, "--parallel", way]) == 0
    ranks.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
