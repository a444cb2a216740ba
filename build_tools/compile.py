"""Runs compilers: in parallel, and only where something that counts has changed.

An output is kept under a name made of its command and its compiler's version, beside the list
of files that went into it and a hash of their contents. It is up to date while that hash holds:
dates do not count, and going back to an earlier compiler, torch or flag compiles nothing.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from build_tools import settings
from build_tools.settings import ROOT, BuildError


@dataclass(frozen=True)
class Job:
    """One run of a compiler or linker, in the repository's root.

    Attributes:
        name: What it makes, as the progress shows it; a path without suffix.
        command: The command line. `{output}` stands for the output, `{inputs}` for `inputs`.
        tool: The compilers' names and versions: part of what the output depends on.
        suffix: The output's, `.o` or `.so`.
        inputs: Files beyond those of the dependency file, such as objects to link.
        depends: Whether the compiler is to list the headers it reads.
        strict: Flags that turn warnings into errors; they do not change the output.
        kernel: The kernel family that it belongs to, for the table of times.
        log: Suffix of the file that keeps what the compiler prints, or "".
    """

    name: str
    command: tuple[str, ...]
    tool: str
    suffix: str = ".o"
    inputs: tuple[Path, ...] = ()
    depends: bool = True
    strict: tuple[str, ...] = ("-Werror",)
    kernel: str = ""
    log: str = ""

    @property
    def output(self) -> Path:
        """Where the output is kept."""
        key = _hash("\0".join((self.tool, *self.command)).encode())[:12]
        return settings.build_dir() / "objects" / f"{self.name}.{key}{self.suffix}"

    @property
    def log_path(self) -> Path:
        """Where the compiler's output is kept, if `log` is set."""
        return self.output.with_name(self.output.name + self.log)


@dataclass(frozen=True)
class Result:
    """What became of a job: its output, and how long the compiler took (0: nothing to do)."""

    job: Job
    seconds: float

    @property
    def output(self) -> Path:
        """The job's output."""
        return self.job.output


def run(jobs: Iterable[Job], title: str) -> list[Result]:
    """Brings every job's output up to date and prints a line for each one that had to run.

    Returns:
        One result per job, in order.

    Raises:
        BuildError: A compiler failed; what it printed has been shown.
    """
    jobs = list(jobs)
    stale = [job for job in jobs if not _is_current(job)]
    if not stale:
        return [Result(job, 0.0) for job in jobs]
    workers = min(settings.jobs(), len(stale))
    print(f"{title}: {len(stale)} of {len(jobs)} to build, {workers} at a time", flush=True)
    seconds: dict[str, float] = {}
    with ThreadPoolExecutor(workers) as pool:
        pending = [pool.submit(_execute, job) for job in stale]
        try:
            for count, (job, future) in enumerate(zip(stale, pending, strict=True), 1):
                seconds[job.name] = future.result()
                mark = f"[{count:{len(str(len(stale)))}}/{len(stale)}]"
                print(f"  {mark} {job.name}{job.suffix}  {seconds[job.name]:.1f} s", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [Result(job, seconds.get(job.name, 0.0)) for job in jobs]


def print_times(results: Iterable[Result]) -> None:
    """Prints the compiler's time for each kernel, or nothing where nothing was compiled."""
    times: dict[str, float] = {}
    for result in results:
        if result.job.kernel:
            times[result.job.kernel] = times.get(result.job.kernel, 0.0) + result.seconds
    if any(times.values()):
        print("Compiler time per kernel:")
        for kernel, spent in sorted(times.items(), key=lambda item: -item[1]):
            print(f"  {kernel:<32} {f'{spent:6.1f} s' if spent else 'unchanged'}")


def install(source: Path, target: Path) -> bool:
    """Copies a file unless the target is the same; a process that uses the old one keeps it."""
    data = source.read_bytes()
    if target.is_file() and target.read_bytes() == data:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    scratch.write_bytes(data)
    scratch.chmod(0o755 if source.suffix == ".so" else 0o644)
    scratch.replace(target)
    return True


def _execute(job: Job) -> float:
    output = job.output
    output.parent.mkdir(parents=True, exist_ok=True)
    _record_path(output).unlink(missing_ok=True)
    scratch = output.with_name(f"{output.name}.{os.getpid()}")  # two builds may run at once
    depfile = scratch.with_name(scratch.name + ".d")
    command = _expand(job, scratch)
    if job.depends:
        command += ["-MMD", "-MF", str(depfile)]
    begun, start = time.time(), time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    seconds = time.monotonic() - start
    if done.returncode != 0:
        scratch.unlink(missing_ok=True)
        depfile.unlink(missing_ok=True)
        sys.stdout.flush()
        print(f"{' '.join(command)}\n{done.stdout}{done.stderr}", file=sys.stderr, flush=True)
        tool = Path(command[0]).name
        raise BuildError(f"{tool} could not build {job.name}: the messages above say why")
    if job.log:
        job.log_path.write_text(done.stdout + done.stderr)
    elif done.stdout + done.stderr:
        print(done.stdout + done.stderr, file=sys.stderr, end="", flush=True)
    scratch.replace(output)
    sources = _read_depfile(depfile) if job.depends else []
    # What was edited meanwhile may or may not be in the output: then there is no record of it.
    ended = time.time()
    dates = [os.stat(ROOT / path).st_mtime for path in (*sources, *job.inputs)]
    if not any(begun <= date <= ended for date in dates):
        record = {"sources": sources, "hash": _content_hash(job, sources)}
        _record_path(output).write_text(json.dumps(record, indent=1))
    return seconds


def _expand(job: Job, output: Path) -> list[str]:
    command: list[str] = []
    for argument in job.command:
        if argument == "{inputs}":
            command += [str(path) for path in job.inputs]
        else:
            command.append(argument.replace("{output}", str(output)))
    return command + list(job.strict if settings.warnings_are_errors() else ())


def _is_current(job: Job) -> bool:
    try:
        record = json.loads(_record_path(job.output).read_text())
        kept = job.output.is_file() and (not job.log or job.log_path.is_file())
        return kept and record["hash"] == _content_hash(job, record["sources"])
    except (OSError, ValueError, KeyError):
        return False


def _record_path(output: Path) -> Path:
    return output.with_name(output.name + ".json")


def _content_hash(job: Job, sources: list[str]) -> str:
    digest = hashlib.sha256()
    for path in (*sources, *job.inputs):
        digest.update(_hash((ROOT / path).read_bytes()).encode())
    return digest.hexdigest()


def _read_depfile(path: Path) -> list[str]:
    """Returns the files that a dependency file names after its target, then removes it."""
    text = path.read_text().replace("\\\n", " ").split(":", 1)[1]
    path.unlink()
    names = text.replace("\\ ", "\0").split()
    return sorted({_relative(name.replace("\0", " ")) for name in names})


def _relative(name: str) -> str:
    path = os.path.normpath(os.path.join(ROOT, name))
    return os.path.relpath(path, ROOT) if path.startswith(f"{ROOT}{os.sep}") else path


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
