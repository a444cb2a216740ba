"""Where things are, and what the environment's variables ask for."""

import difflib
import functools
import os
import re
import subprocess
from pathlib import Path

import configs

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "thunderkittens"

KNOWN_ARCHITECTURES = configs.ALL_ARCHITECTURES
NATIVE = "native"  # the architecture of this machine's GPUs
MINIMUM_TORCH = (2, 11)
MINIMUM_CUDA = (12, 3)
GIB_PER_JOB = 2  # what one compilation of a file that includes ATen may take

CACHE_GIB = 5  # a build and the tests take less than one


class BuildError(Exception):
    """What stops a build, in one sentence: found, needed, and the command that fixes it."""


def version() -> str:
    """Returns the version of the sources, which pyproject.toml states; a build adds to it."""
    text = (ROOT / "pyproject.toml").read_text()
    return re.search(r'^version = "(.+)"', text, re.MULTILINE)[1]


def build_dir() -> Path:
    """Returns the folder of objects and libraries; THUNDERKITTENS_BUILD_DIR moves it."""
    return Path(os.environ.get("THUNDERKITTENS_BUILD_DIR") or ROOT / "build").resolve()


def cache_bytes() -> int:
    """Returns the limit of what trees share: THUNDERKITTENS_CACHE_GIB, else 5 GiB; 0: nothing."""
    text = os.environ.get("THUNDERKITTENS_CACHE_GIB") or str(CACHE_GIB)
    if not re.fullmatch(r"\d+(\.\d*)?", text):
        raise BuildError(f"THUNDERKITTENS_CACHE_GIB must be a number of GiB ≥ 0, got {text!r}")
    return int(float(text) * 2**30)


def selected_kernels() -> list[configs.Kernel]:
    """Returns the families whose CUDA code is wanted: THUNDERKITTENS_KERNELS, else configs.py.

    Raises:
        BuildError: A name is neither a family nor an op.
    """
    names = _list_from("THUNDERKITTENS_KERNELS")
    if names is None:
        return [kernel for kernel in configs.KERNELS if kernel.selected]
    known = {op: kernel.name for kernel in configs.KERNELS for op in (*kernel.ops, kernel.name)}
    for name in names:
        if name not in known:
            raise BuildError(_unknown("THUNDERKITTENS_KERNELS", "kernel", name, known))
    wanted = {known[name] for name in names}
    return [kernel for kernel in configs.KERNELS if kernel.name in wanted]


def selected_architectures() -> tuple[str, ...]:
    """Returns the GPU architectures to build for: THUNDERKITTENS_ARCHITECTURES, else configs.py.

    Raises:
        BuildError: A name is no architecture that the kernels know, or "native" where no GPU is
            found, or one that none of them runs on.
    """
    names = _list_from("THUNDERKITTENS_ARCHITECTURES") or list(configs.ARCHITECTURES)
    if NATIVE in names:
        names = [*(name for name in names if name != NATIVE), *_native_architectures()]
    for name in names:
        if name not in KNOWN_ARCHITECTURES:
            known = dict.fromkeys((*KNOWN_ARCHITECTURES, NATIVE))
            raise BuildError(_unknown("THUNDERKITTENS_ARCHITECTURES", "architecture", name, known))
    return tuple(sorted(set(names), key=KNOWN_ARCHITECTURES.index))


def architecture_of(capability: str) -> str:
    """Returns the newest architecture whose binaries run on a GPU of a compute capability.

    Within a major version they run on every later minor one; those of sm_90a on 9.0 alone.

    Args:
        capability: As "8.6".

    Raises:
        BuildError: There is none.
    """
    major, _, minor = capability.partition(".")
    numbers = {name: int(name.removeprefix("sm_").rstrip("a")) for name in KNOWN_ARCHITECTURES}
    fitting = [
        name
        for name, number in numbers.items()
        if f"{number // 10}" == major and number % 10 <= int(minor)
    ]
    if not fitting:
        raise BuildError(
            f"THUNDERKITTENS_ARCHITECTURES: this machine's GPU has compute capability "
            f"{capability}, which no architecture runs on (known: {', '.join(KNOWN_ARCHITECTURES)})"
        )
    return fitting[-1]


@functools.cache
def _native_architectures() -> tuple[str, ...]:
    """Returns the architectures of this machine's GPUs, as NVIDIA's driver tells them."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = sorted(set(done.stdout.split()))
    except (OSError, subprocess.CalledProcessError):
        found = []
    if not found:
        raise BuildError(
            "THUNDERKITTENS_ARCHITECTURES: native is the GPU of this machine, and nvidia-smi finds "
            f"none; name architectures: {', '.join(KNOWN_ARCHITECTURES)}"
        )
    return tuple(architecture_of(capability) for capability in found)


def cuda_mode() -> str:
    """Returns THUNDERKITTENS_CUDA: "0" (never), "1" (or fail) or "auto" (where nvcc is)."""
    mode = os.environ.get("THUNDERKITTENS_CUDA") or "auto"
    if mode not in ("0", "1", "auto"):
        raise BuildError(f"THUNDERKITTENS_CUDA must be 0, 1 or auto, got {mode!r}")
    return mode


def warnings_are_errors() -> bool:
    """Returns whether THUNDERKITTENS_WARNINGS is "error", which it is unless set to "show"."""
    mode = os.environ.get("THUNDERKITTENS_WARNINGS") or "error"
    if mode not in ("error", "show"):
        raise BuildError(f"THUNDERKITTENS_WARNINGS must be error or show, got {mode!r}")
    return mode == "error"


def jobs() -> int:
    """Returns how many compilers to run at once: THUNDERKITTENS_JOBS, MAX_JOBS, or what fits."""
    for variable in ("THUNDERKITTENS_JOBS", "MAX_JOBS"):
        text = os.environ.get(variable)
        if text:
            if not text.isdigit() or int(text) < 1:
                raise BuildError(f"{variable} must be a number of jobs ≥ 1, got {text!r}")
            return int(text)
    return max(1, min(_usable_cores(), int(_usable_gib() / GIB_PER_JOB)))


def _list_from(variable: str) -> list[str] | None:
    text = os.environ.get(variable, "")
    names = [name.strip() for name in text.replace(";", ",").split(",") if name.strip()]
    return names or None


def _unknown(variable: str, kind: str, name: str, known: dict) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"{variable}: unknown {kind} {name!r}; {hint}(known: {', '.join(known)})"


def _cgroup(name: str) -> str:
    try:
        return Path("/sys/fs/cgroup", name).read_text().split("\n")[0]
    except OSError:
        return ""


def _usable_cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _cgroup("cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        cores = min(cores or 1, max(1, int(quota[0]) // int(quota[1])))
    return cores or 1


def _usable_gib() -> float:
    gib = 8.0
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        gib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvai")) / 2**20
    except (OSError, StopIteration):
        pass
    limit = _cgroup("memory.max")
    return min(gib, int(limit) / 2**30) if limit.isdigit() else gib
