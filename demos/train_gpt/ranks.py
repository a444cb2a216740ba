"""The processes of a run on several devices: started and watched here, or by torchrun.

Where one of them ends before its time, all end, with one sentence.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist

GONE = 3  # the exit code of a rank that has lost another one
PATIENCE = 5.0  # seconds for ranks to end by themselves once one of them has
PROGRAM = Path(__file__).with_name("train.py")


def is_one() -> bool:
    """Whether this process is a rank: of `run_all` or of torchrun."""
    return "RANK" in os.environ


def local() -> int:
    """The number of this rank among those of this machine."""
    return int(os.environ["LOCAL_RANK"])


def here(count: int) -> int:
    """How many of all ranks run on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", count)) if is_one() else count


def speaks() -> bool:
    """Whether this process is the one that prints: rank 0, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def is_of_another(error: RuntimeError) -> bool:
    """Whether an error says that another rank is gone: what torch's backends raise then."""
    return isinstance(error, dist.DistError) or "/gloo/" in str(error)


def leave(code: int) -> NoReturn:
    """Ends the process: of a rank without Python's shutdown.

    Gloo's threads live on, and one that frees a tensor meanwhile may abort the process, as in
    pytorch#190489.
    """
    if not is_one():
        sys.exit(code)
    if code in (0, 130):
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_all(count: int, arguments: list[str]) -> int:
    """Runs the program once for each rank; returns the exit code.

    Args:
        count: How many ranks.
        arguments: The command line of each.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // count))}
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            env=threads | os.environ | meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(count)
    ]

    def send(number: int, _frame: object) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    handlers = {n: signal.signal(n, send) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _watch(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _watch(processes: list[subprocess.Popen]) -> int:
    """Waits until all have ended, or one has failed and the others had their time."""
    deadline = None
    while None in (codes := [process.poll() for process in processes]):
        failed = [code for code in codes if code not in (None, 0, 130)]
        if failed and deadline is None:
            deadline = time.monotonic() + PATIENCE
        killed = any(code < 0 for code in failed)
        if killed or (deadline is not None and time.monotonic() > deadline):
            break
        time.sleep(0.05)
    for rank, code in enumerate(codes):
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            print(f"train: rank {rank} was ended by {name}, and so all have ended", file=sys.stderr)
            return 1
    failed = [code for code in codes if code not in (None, 0, 130, GONE)]
    return failed[0] if failed else max(code or 0 for code in codes)
