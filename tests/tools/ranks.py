"""Programs that run as several ranks: started together, judged together, none left behind."""

import os
import socket
import subprocess
import sys
from typing import NoReturn

import torch
import torch.distributed as dist

from build_tools.settings import ROOT

SAID = "all ranks agree"


def run_ranks(module: str, ranks: int, *arguments: str, seconds: int = 300) -> None:
    """Runs `python -m MODULE ARGUMENTS` for each rank; all have to end well.

    Args:
        module: What says `SAID` at its end; `begin` and `end` are for its main.
        ranks: How many processes, with torchrun's variables.
        arguments: Of each.
        seconds: What it may take.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    alike = os.environ | meeting | {"THUNDERKITTENS_STRICT": "0"}  # float32 attention is torch's
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,  # where the tests are; the package may be installed elsewhere
            env=alike | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
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
        assert p.returncode == 0 and SAID in text, f"exit status {p.returncode}: {text}"


def begin(device: str) -> int:
    """Makes the group of all ranks, gloo on a CPU, NCCL on GPUs, one for each; returns the rank."""
    rank = int(os.environ["RANK"])
    if device == "cuda":
        torch.cuda.set_device(rank)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo" if device == "cpu" else "nccl")
    return rank


def end() -> NoReturn:
    """Ends the process: without Python's shutdown.

    Gloo's threads live on, for torch still refers to the group; one that frees a tensor while
    Python shuts down may abort the process (as in pytorch#190489).
    """
    dist.destroy_process_group()
    print(SAID, flush=True)
    os._exit(0)
