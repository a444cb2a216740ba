"""The command line: `python -m thunderkittens info [--json]`."""

import argparse
import json
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

from thunderkittens import _loader

DRIVER = Path("/proc/driver/nvidia/version")


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit code (0: the ops are loaded, 1: they are not)."""
    parser = argparse.ArgumentParser(prog="python -m thunderkittens", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("info", help="versions, what was built, what this machine runs")
    command.add_argument("--json", action="store_true", help="for programs")
    arguments = parser.parse_args(argv)
    found = collect()
    try:
        print(json.dumps(found, indent=1) if arguments.json else render(found), flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
    return 1 if found["problem"] else 0


def collect() -> dict[str, Any]:
    """Everything that `info` shows; works when the libraries cannot be loaded."""
    problem = _loader.problem
    library = _loader.LIBRARY
    return {
        "problem": problem,
        "build": _loader.built_for() if library.is_file() else {},
        "running": _running(),
        "gpus": _gpus(),
        "simulator": _loader.SIMULATOR.is_file(),
        "ops": _ops() if problem is None else [],
    }


def render(found: dict[str, Any]) -> str:
    """`collect()` for people."""
    build, running = found["build"], found["running"]

    def text(value: object) -> str:
        return "none" if value is None else str(value)

    lines = [
        f"thunderkittens {build.get('version', '(not built)')}, "
        f"revision {text(build.get('revision'))}",
        f"  running  Python {running['python']}, torch {text(running['torch'])}, "
        f"CUDA of torch {text(running['torch_cuda'])}, driver {text(running['driver'])}",
    ]
    if build:
        lines.append(
            f"  built    with {text(build.get('compiler'))} for torch {text(build.get('torch'))}, "
            + (f"CUDA toolkit {build['cuda']}" if build.get("cuda") else "without CUDA kernels")
        )
    for family, architectures in dict(build.get("kernels") or {}).items():
        lines.append(f"  kernels  {family}: {', '.join(architectures)}")
    for gpu in found["gpus"]:
        lines.append(
            f"  GPU {gpu['index']}    {gpu['name']}, {gpu['architecture']}, "
            f"{gpu['block_shared_kb']} KB of shared memory a block"
        )
    if not found["gpus"]:
        lines.append("  GPUs     none that torch can use")
    state = "built" if found["simulator"] else "not built (make test builds it)"
    lines.append(f"  simulator {state}")
    for op in found["ops"]:
        lines.append(f"  {op['op']}")
        lines += [f"    {device:9} {answer}" for device, answer in op["devices"].items()]
    if found["problem"]:
        lines.append(f"The ops cannot be loaded: {found['problem']}.")
    return "\n".join(lines)


def _running() -> dict[str, Any]:
    found = {"python": platform.python_version(), "driver": _driver()}
    try:
        import torch
    except ImportError:
        return {**found, "torch": None, "torch_cuda": None}
    return {**found, "torch": torch.__version__, "torch_cuda": torch.version.cuda}


def _driver() -> str | None:
    """The version of NVIDIA's driver; None when there is none."""
    if not DRIVER.is_file():
        return None
    return _driver_version(DRIVER.read_text())


def _driver_version(text: str) -> str | None:
    """From a line like `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04 …`."""
    found = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)\s", text)
    return found[1] if found else None


def _gpus() -> list[dict[str, Any]]:
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    gpus = []
    for index in range(torch.cuda.device_count()):
        gpu: Any = torch.cuda.get_device_properties(index)  # whose stub lacks some attributes
        gpus.append(
            {
                "index": index,
                "name": gpu.name,
                "architecture": f"sm_{gpu.major}{gpu.minor}",
                "block_shared_kb": gpu.shared_memory_per_block_optin // 1024,
            }
        )
    return gpus


def _ops() -> list[dict[str, Any]]:
    """For each public op, what serves it on each device of this machine, and why not our kernel."""
    from thunderkittens import _C
    from thunderkittens._explain import public_ops

    count = len(_gpus())
    ops = []
    for op in public_ops():
        kernels = [kernel for kernel in _C.kernels() if kernel["op"] == op]
        # An op of several kernels has those architectures that all of them have.
        built = [
            a for a in kernels[0]["architectures"] if all(a in k["architectures"] for k in kernels)
        ]
        devices = {"cpu": "torch"}
        for index in range(max(count, 1)):
            reason = _C.why_not(op, index)
            name = f"cuda:{index}" if count else "cuda"
            ours = "our generic kernel" if _C.takes_generic(op, index) else "our kernel"
            devices[name] = f"torch ({reason})" if reason else ours
        if "simulator" in built or _loader.SIMULATOR.is_file():
            devices["simulator"] = "our kernel"
        ops.append({"op": op, "architectures": built, "devices": devices})
    return ops
