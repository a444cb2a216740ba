"""Draws the timelines of demos/custom_kernel from what the simulator writes.

`python -m tests.demos.timelines` draws all of them anew.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from build_tools import simulator, timeline
from build_tools.settings import ROOT
from tests.kittens.classic import test_classic

FOLDER = ROOT / "demos/custom_kernel"
POLICY = "random:1,threads=1"
PICTURES = {  # of each kernel: a launch of its check in tests/kittens/classic, what that computes
    "attention": (0, "64 tokens"),
    "flash_attention_2": (1, "256 tokens"),
    "load_store_compute_finish": (1, "384 tokens"),
    "flash_attention_3": (2, "448 tokens, head dimension 64"),
    "gemm": (1, "256 × 256 × 640"),
    "linear_attention": (1, "400 tokens"),
}


def draw(name: str) -> str:
    """Runs the check of a kernel in the simulator, and draws a block of one of its launches."""
    check = f"demo_{name}"
    job = test_classic.simulator_job(simulator.headers(), f"check_{check}.cu", check)
    (program,) = simulator.build_programs([job])
    launch, what = PICTURES[name]
    block = "a cluster" if name == "gemm" else "a block"
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        environment = os.environ | {"KITTENS_SIM": f"{POLICY},trace={trace}"}
        subprocess.run([program], env=environment, stdout=subprocess.DEVNULL, check=True)
        title = f"{name}.cu, {what}: {block} in the simulator"
        return timeline.draw(json.loads(trace.read_text()), launch, title)


def main() -> int:
    """Returns the exit code."""
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(draw(name))
        print(FOLDER / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
