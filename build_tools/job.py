"""What there is to compile or link, and what has become of it."""

from dataclasses import dataclass
from pathlib import Path

from build_tools import content, settings


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
        needs: Jobs, such as a precompiled header's, to do before this one is, if it has to be.
        shared: Whether another source tree may take its output.
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
    needs: tuple["Job", ...] = ()
    shared: bool = True

    @property
    def output(self) -> Path:
        """Where the output is kept."""
        names = content.names(settings.ROOT)
        key = content.of_words(self.tool, *map(names.of, self.command))[:12]
        return settings.build_dir() / "objects" / f"{self.name}.{key}{self.suffix}"

    @property
    def log_path(self) -> Path:
        """Where the compiler's output is kept, if `log` is set."""
        return self.output.with_name(self.output.name + self.log)


@dataclass(frozen=True)
class Result:
    """What became of a job: its output, and the processors' seconds (0: nothing to do)."""

    job: Job
    seconds: float

    @property
    def output(self) -> Path:
        """The job's output."""
        return self.job.output
