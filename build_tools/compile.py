"""Runs compilers: in parallel, and only where something that counts has changed.

An output is kept under a name made of its command and its compiler's version, beside the list
of files that went into it and a hash of their contents. It is up to date while that hash holds:
dates do not count, and going back to an earlier compiler, torch or flag compiles nothing. What
another tree of this user has made of the same contents is taken from there (`objects.py`).
"""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from build_tools import cache, content, objects, progress, settings
from build_tools.job import Job, Result
from build_tools.settings import ROOT, BuildError


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
    kept = objects.Kept(ROOT)
    fetched = _in_parallel(partial(_fetch, kept=kept), stale)
    missing = [job for job, found in zip(stale, fetched, strict=True) if not found]
    if len(missing) < len(stale):
        count = len(stale) - len(missing)
        progress.say(f"{title}: {count} of {len(jobs)} from {cache.folder().parent}")
    if not missing:
        return [Result(job, 0.0) for job in jobs]
    needed = dict.fromkeys(need for job in missing for need in job.needs if not _is_current(need))
    # Those that wait for others come last.
    queue = [*needed, *sorted(missing, key=lambda job: bool(job.needs))]
    done = {need: threading.Event() for need in needed}
    workers = min(settings.jobs(), len(queue))
    total = len(jobs) + len(needed)
    ahead = progress.Progress(queue, workers)
    pace = f"{workers} at a time, about {progress.duration(ahead.left())}"
    progress.say(f"{title}: {len(queue)} of {total} to build, {pace}")
    show = partial(_show, counter=itertools.count(1), total=len(queue), ahead=ahead)
    execute = partial(_execute_in_turn, kept=kept, done=done, ahead=ahead)
    spent = _in_parallel(execute, queue, show)
    seconds = dict(zip(queue, spent, strict=True))
    cache.trim()
    return [Result(job, seconds.get(job, 0.0)) for job in jobs]


def cost(job: Job) -> float:
    """Returns the compiler's seconds for what is there, in this tree or in another; 0: none."""
    try:
        return float(json.loads(_record_path(job.output).read_text())["seconds"])
    except (OSError, ValueError, KeyError):
        return 0.0


def print_times(results: Iterable[Result]) -> None:
    """Prints the compiler's seconds for each kernel, or nothing where nothing was compiled."""
    times: dict[str, float] = {}
    for result in results:
        if result.job.kernel:
            times[result.job.kernel] = times.get(result.job.kernel, 0.0) + result.seconds
    if any(times.values()):
        print("Compiler's seconds of a processor, per kernel:")
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


def _in_parallel(function: Callable, jobs: list[Job], show: Callable = lambda *_: None) -> list:
    """Calls a function for each job, as many at a time as the machine can, and shows results."""
    found = []
    with ThreadPoolExecutor(min(settings.jobs(), len(jobs))) as pool:
        pending = [pool.submit(function, job) for job in jobs]
        try:
            for job, future in zip(jobs, pending, strict=True):
                found.append(future.result())
                show(job, found[-1])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found


def _fetch(job: Job, kept: objects.Kept) -> bool:
    """Puts what another tree has made of a job into this one; returns whether there was any."""
    found = kept.read(job)
    if found is None:
        return False
    output = job.output
    output.parent.mkdir(parents=True, exist_ok=True)
    _record_path(output).unlink(missing_ok=True)
    if job.log:
        job.log_path.write_bytes(found.log)
    scratch = _scratch(output)
    scratch.write_bytes(found.output)
    scratch.chmod(0o755 if job.suffix in (".exe", ".so") else 0o644)
    scratch.replace(output)
    _write_record(job, found.sources, found.seconds)
    return True


def _execute_in_turn(
    job: Job, kept: objects.Kept, done: dict[Job, threading.Event], ahead: progress.Progress
) -> float:
    for need in job.needs:
        if need in done:
            done[need].wait()
    ahead.begin(job)
    try:
        return _execute(job, kept)
    finally:
        ahead.end(job)
        if job in done:
            done[job].set()


def _execute(job: Job, kept: objects.Kept) -> float:
    output = job.output
    output.parent.mkdir(parents=True, exist_ok=True)
    _record_path(output).unlink(missing_ok=True)
    scratch = _scratch(output)
    depfile = scratch.with_name(scratch.name + ".d")
    command = _expand(job, scratch)
    if job.depends:
        command += ["-MD", "-MF", str(depfile)]
        if "-include" in command:  # or what a precompiled header has read is left out
            command.append("-fpch-deps")
    begun = time.time()
    status, said, seconds = _call(command)
    if status != 0:
        scratch.unlink(missing_ok=True)
        depfile.unlink(missing_ok=True)
        sys.stdout.flush()
        print(f"{' '.join(command)}\n{said}", file=sys.stderr, flush=True)
        tool = Path(command[0]).name
        raise BuildError(f"{tool} could not build {job.name}: the messages above say why")
    if job.log:
        job.log_path.write_text(said)
    elif said:
        print(said, file=sys.stderr, end="", flush=True)
    scratch.replace(output)
    sources = _read_depfile(depfile) if job.depends else []
    # What was edited meanwhile may or may not be in the output: then there is no record of it.
    ended = time.time()
    dates = [os.stat(ROOT / path).st_mtime for path in (*sources, *job.inputs)]
    if not any(begun <= date <= ended for date in dates):
        _write_record(job, sources, seconds)
        if job.log or not said:  # a warning is to be seen in each tree
            kept.write(job, sources, seconds)
    return seconds


def _call(command: list[str]) -> tuple[int, str, float]:
    """Runs a program.

    Returns:
        Its exit status, what it printed, and the processors' seconds of it and what it started:
        not those of a clock, in which waiting for a processor that others use would be.
    """
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            said = process.stdout.read() if process.stdout else ""
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, said, used.ru_utime + used.ru_stime


def _show(
    job: Job, seconds: float, counter: Iterator[int], total: int, ahead: progress.Progress
) -> None:
    count = next(counter)
    mark = f"[{count:{len(str(total))}}/{total}]"
    left = f", about {progress.duration(ahead.left())} left" if count < total else ""
    progress.say(f"  {mark} {job.name}{job.suffix}  {seconds:.1f} s{left}")


def _scratch(output: Path) -> Path:
    # Two builds may run at once, of two processes or of one.
    return output.with_name(f"{output.name}.{os.getpid()}.{threading.get_ident()}")


def _expand(job: Job, output: Path) -> list[str]:
    command: list[str] = []
    for argument in job.command:
        if argument == "{inputs}":
            command += [str(path) for path in job.inputs]
        else:
            command.append(argument.replace("{output}", str(output)))
    if job.depends:  # the tree's path is neither in messages nor in what debuggers read
        mapped = f"-ffile-prefix-map={ROOT}=."
        command += ["-Xcompiler", mapped] if Path(command[0]).name == "nvcc" else [mapped]
    return command + list(job.strict if settings.warnings_are_errors() else ())


def _is_current(job: Job) -> bool:
    try:
        record = json.loads(_record_path(job.output).read_text())
        kept = job.output.is_file() and (not job.log or job.log_path.is_file())
        return kept and record["hash"] == _content_hash(job, record["sources"])
    except (OSError, ValueError, KeyError):
        return False


def _write_record(job: Job, sources: list[str], seconds: float) -> None:
    own = [path for path in sources if not _is_system(job, path)]
    record = {"sources": own, "hash": _content_hash(job, own), "seconds": round(seconds, 3)}
    _record_path(job.output).write_text(json.dumps(record, indent=1))


def _is_system(job: Job, path: str) -> bool:
    """Whether a header is the system's, torch's or CUDA's: the job's `tool` has the version."""
    folders = [b for a, b in itertools.pairwise(job.command) if a == "-isystem"]
    return path.startswith(("/usr/", *folders)) or "/site-packages/nvidia/" in path


def _record_path(output: Path) -> Path:
    return output.with_name(output.name + ".json")


def _content_hash(job: Job, sources: list[str]) -> str:
    return content.of_words(*(content.of_file(ROOT / path) for path in (*sources, *job.inputs)))


def _read_depfile(path: Path) -> list[str]:
    """Returns the files that a dependency file names after its target, then removes it."""
    text = path.read_text().replace("\\\n", " ").split(":", 1)[1]
    path.unlink()
    names = text.replace("\\ ", "\0").split()
    return sorted({_relative(name.replace("\0", " ")) for name in names})


def _relative(name: str) -> str:
    path = os.path.normpath(os.path.join(ROOT, name))
    return os.path.relpath(path, ROOT) if path.startswith(f"{ROOT}{os.sep}") else path
