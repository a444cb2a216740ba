"""Programs that run as several ranks: started together, judged together, none left behind."""

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from build_tools.settings import ROOT

SAID = "all ranks agree"


def run_ranks(module: str, ranks: int, folder: Path, *arguments: str, seconds: int = 300) -> None:
    """Runs `python -m MODULE ARGUMENTS RANK RANKS FILE` for each rank; all have to end well.

    Args:
        module: With a main that calls `begin` and `end`.
        ranks: How many processes.
        folder: Where they meet, at a file.
        arguments: In front of those.
        seconds: What it may take.
    """
    command = [sys.executable, "-m", module, *arguments]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(folder / "meeting")],
            cwd=ROOT,  # where the tests are; the package may be installed elsewhere
            env=os.environ | {"THUNDERKITTENS_STRICT": "0"},  # float32 attention is torch's
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [p.communicate(timeout=seconds)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()
    for p, text in zip(processes, said, strict=True):
        assert p.returncode == 0 and SAID in text, text


def begin(device: str, rank: str, ranks: str, file: str) -> None:
    """Makes the group of all ranks: gloo on a CPU, NCCL on GPUs, one for each rank."""
    if device == "cuda":
        torch.cuda.set_device(int(rank))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    backend = "gloo" if device == "cpu" else "nccl"
    dist.init_process_group(backend, f"file://{file}", rank=int(rank), world_size=int(ranks))


def end() -> None:
    """Ends the process: without Python's shutdown.

    Gloo's threads live on, for torch still refers to the group; one that frees a tensor while
    Python shuts down may abort the process (as in pytorch#190489).
    """
    dist.destroy_process_group()
    print(SAID, flush=True)
    os._exit(0)
