"""Draws the timelines of demos/custom_kernel from what the simulator writes.

`python -m tests.kittens.classic.timelines` draws all of them anew.
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
PICTURES = {  # of a kernel of test_classic.py: a launch of its check, and what that computes
    "demo": (0, "64 tokens"),
    "demo_2": (1, "256 tokens"),
    "demo_3": (1, "384 tokens"),
    "demo_4": (2, "448 tokens, head dimension 64"),
    "demo_gemm": (1, "256 × 256 × 640"),
    "demo_linear_attention": (1, "400 tokens"),
}


def path_of(name: str) -> Path:
    """The picture of a kernel."""
    return FOLDER / f"{test_classic.KERNELS[name].stem}.svg"


def draw(name: str, program: Path) -> str:
    """Runs the check of a kernel, and draws a block of one of its launches."""
    launch, what = PICTURES[name]
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        environment = os.environ | {"KITTENS_SIM": f"{POLICY},trace={trace}"}
        subprocess.run([program], env=environment, stdout=subprocess.DEVNULL, check=True)
        block = "a cluster" if name == "demo_gemm" else "a block"
        title = f"{test_classic.KERNELS[name].name}, {what}: {block} in the simulator"
        return timeline.draw(json.loads(trace.read_text()), launch, title)


def main() -> int:
    """Returns the exit code."""
    headers = simulator.headers()
    for name in PICTURES:
        job = test_classic.simulator_job(headers, f"check_{name}.cu", name)
        (program,) = simulator.build_programs([job])
        path_of(name).write_text(draw(name, program))
        print(path_of(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
