"""Outputs of compilers that source trees of one user share, in the cache.

A job's key is its command, in which folders have names instead of paths, with the versions of its
tools. Under it are the lists of files that such jobs have read so far: a list, with the contents
that its files have now, is the key of an output. So a header that changes leads to another output,
and one that changes back to the first.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from build_tools import cache, content
from build_tools.job import Job

LISTS = 8  # of files, that are remembered for a job: the latest


@dataclass(frozen=True)
class Output:
    """What another tree has made.

    Attributes:
        output: The file.
        log: What the compiler said.
        seconds: Of processors, that it took.
        sources: All the files that it read.
    """

    output: bytes
    log: bytes
    seconds: float
    sources: list[str]


class Kept:
    """The cache's outputs, for jobs of one source tree."""

    def __init__(self, root: Path) -> None:
        """Looks at the cache for the tree in a folder."""
        self._root = root
        self._names = content.names(root)
        self._machine = content.machine()

    def read(self, job: Job) -> Output | None:
        """Returns the output of a job with the contents that its files have now, if one is kept."""
        if cache.folder() is None or not job.shared:
            return None
        key = self._job_key(job)
        for names in self._lists(key) if job.depends else [[]]:
            try:
                parts = cache.read("objects", self._key(key, names, job))
            except OSError:  # a file of that list is not there
                continue
            if parts is not None:
                output, log, seconds = parts
                return Output(output, log, float(seconds), [self._path(name) for name in names])
        return None

    def write(self, job: Job, sources: list[str], seconds: float) -> None:
        """Keeps the output of a job, which has read these files, absolute or of this tree."""
        if cache.folder() is None or not job.shared:
            return
        key = self._job_key(job)
        names = [self._names.of(str(self._root / path)) for path in sources]
        log = job.log_path.read_bytes() if job.log else b""
        parts = [job.output.read_bytes(), log, f"{seconds:.3f}".encode()]
        cache.write("objects", self._key(key, names, job), parts)
        lists = self._lists(key) if job.depends else [names]
        if names not in lists:
            cache.write("sources", key, [json.dumps([names, *lists][:LISTS]).encode()])

    def _job_key(self, job: Job) -> str:
        words = self._names.command(job.command)
        return content.of_words(self._machine, job.tool, job.suffix, job.log, *words)

    def _lists(self, key: str) -> list[list[str]]:
        (text,) = cache.read("sources", key) or (b"[]",)
        return json.loads(text)

    def _key(self, key: str, names: list[str], job: Job) -> str:
        files = [content.of_file(self._root / self._path(name)) for name in names]
        inputs = [content.of_file(self._root / path) for path in job.inputs]
        return content.of_words(key, *names, *files, *inputs)

    def _path(self, name: str) -> str:
        path = self._names.path(name)
        return str(Path(path).relative_to(self._root)) if name.startswith("./") else path
