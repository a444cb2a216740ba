"""Programs that run as several ranks: started together, judged together, none left behind.

On a CPU they are forks of one process, which has imported what they need: for each rank alone, that
was most of what it computed.
"""

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from build_tools.settings import ROOT

SAID = "all ranks agree"


def run_ranks(module: str, ranks: int, *arguments: str, seconds: int = 300) -> None:
    """Runs `main` of a module with arguments for each rank; all have to end well.

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
    every = [str(rank) for rank in range(ranks)]
    of_processes = every if "cuda" in arguments else [",".join(every)]
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", __name__, folder, some, module, *arguments],
                cwd=ROOT,  # where the tests are; the package may be installed elsewhere
                env=alike,
                start_new_session=True,  # whose processes can be ended together
            )
            for some in of_processes
        ]
        try:
            for p in processes:
                p.wait(timeout=seconds)
        finally:
            for p in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(p.pid, signal.SIGKILL)
                p.wait()
        for rank in every:
            output = Path(folder, rank)
            text = output.read_text() if output.is_file() else "has not begun"
            assert SAID in text, f"rank {rank}: {text}"
    assert not any(p.returncode for p in processes)


def _fork(folder: str, ranks: str, module: str, *arguments: str) -> int:
    """Runs some of the ranks, whose outputs go to files of a folder; returns how many failed."""
    main = importlib.import_module(module).main
    children = []
    for rank in ranks.split(","):
        child = os.fork()
        if child == 0:
            _become(Path(folder, rank), rank, main, arguments)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


def _become(output: Path, rank: str, main: Callable, arguments: tuple[str, ...]) -> NoReturn:
    os.environ.update(RANK=rank, LOCAL_RANK=rank)
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    try:
        main(*arguments)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(1)  # who ends well calls `end`


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


if __name__ == "__main__":
    sys.exit(_fork(*sys.argv[1:]))
