"""Programs that run as several ranks: started together, judged together, none left behind.

The ranks are forks of one process that has imported torch, which takes seconds of a processor.
"""

import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
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
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.tools.ranks", folder, module, *arguments],
            cwd=ROOT,  # where the tests are; the package may be installed elsewhere
            env=alike,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a group, which ends as one
        )
        try:
            statuses = process.communicate(timeout=seconds)[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said = [Path(folder, str(rank)).read_text() for rank in range(ranks)]
    for status, text in zip(json.loads(statuses), said, strict=True):
        assert status == 0 and SAID in text, text


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


def main() -> int:
    """Forks for each of WORLD_SIZE ranks, before anything has begun to use a GPU.

    Their output goes to files of a folder; how each has ended is printed.
    """
    folder, module, *arguments = sys.argv[1:]
    children = []
    for rank in map(str, range(int(os.environ["WORLD_SIZE"]))):
        child = os.fork()
        if child == 0:
            output = os.open(Path(folder, rank), os.O_WRONLY | os.O_CREAT)
            for stream in (1, 2):
                os.dup2(output, stream)
            os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            return 0
        children.append(child)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
