"""Headers that the C++ compiler reads once for many sources, where it is g++."""

import dataclasses

from build_tools import toolchain
from build_tools.job import Job
from build_tools.settings import ROOT


def header(job: Job) -> tuple[tuple[str, ...], tuple[Job, ...]]:
    """Returns what a source's compilation needs to begin with a header, or nothing.

    Args:
        job: The compilation of the header as if it were a source, with all the flags that those of
            the sources have.

    Returns:
        Flags for the command of each source, and `needs` for its job.
    """
    if not toolchain.find_compiler().name.startswith("g++"):
        return (), ()
    source = job.command[job.command.index("-c") + 1]
    command = tuple("c++-header" if word == "c++" else word for word in job.command)
    # Unused functions are its users' concern. What is made is large and quickly made: not shared.
    made = dataclasses.replace(job, command=(*command, "-w"), suffix=".gch", shared=False)
    beside = made.output.with_suffix("")  # what g++ is told to include: it takes the .gch of it
    text = f'#include "{ROOT / source}"\n'
    if not beside.is_file() or beside.read_text() != text:
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text)
    return ("-include", str(beside)), (made,)


def begin_with(job: Job, flags: tuple[str, ...], needs: tuple[Job, ...]) -> Job:
    """Returns a source's compilation that begins with the header of `header`'s flags and needs."""
    compiler, *arguments = job.command
    return dataclasses.replace(job, command=(compiler, *flags, *arguments), needs=needs)
