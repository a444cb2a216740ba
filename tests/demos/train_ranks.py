"""Ranks of demos/train_gpt that train in each way, and go on in the next one.

python -m tests.demos.train_ranks FOLDER OPTIONS…, with torchrun's variables: one run for each way,
stopped after its first step and resumed in another way.
"""

import itertools
import sys

import torch.distributed as dist

from tests.demos.conftest import DEMOS
from tests.tools import ranks

sys.path[:0] = [str(DEMOS), str(DEMOS / "train_gpt")]


def main(folder: str, *options: str) -> None:
    """Runs them all, in one group."""
    import parallel
    import train

    ranks.begin("cpu")
    for way, other in itertools.pairwise((*parallel.WAYS, parallel.WAYS[0])):
        out = ["--out", f"{folder}/{way}", "--device", "cpu", "--parallel"]
        assert train.main([*options, *out, way, "--minutes", "0"]) == 0
        dist.barrier()  # rank 0 has saved
        assert train.main([*out, other, "--resume"]) == 0
    ranks.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
