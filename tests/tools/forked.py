"""Python programs that need not import torch: each is a fork of one process that has.

To import it takes seconds, of which a dozen programs are a minute.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from pathlib import Path


class Interpreter:
    """A process that has imported torch and waits for programs to fork for."""

    def __init__(self) -> None:
        """Starts it."""
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()

    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess:
        """Runs `python ARGUMENTS` in a folder: `-c CODE` or `-m MODULE`, each with arguments."""
        with tempfile.TemporaryDirectory() as folder:
            files = [f"{folder}/output", f"{folder}/errors"]
            with self._lock:
                request = json.dumps([arguments, str(cwd), *files])
                print(request, file=self._process.stdin, flush=True)
                status = int(self._process.stdout.readline())
            said = [Path(file).read_text() for file in files]
        return subprocess.CompletedProcess(arguments, status, *said)

    def close(self) -> None:
        """Ends it."""
        self._process.communicate(timeout=60)


def _serve() -> None:
    """Reads programs line by line; in a fork, becomes one."""
    import torch  # noqa: F401

    for line in sys.stdin:
        arguments, folder, output, errors = json.loads(line)
        child = os.fork()
        if child == 0:
            return _become(arguments, folder, output, errors)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


def _become(arguments: list[str], folder: str, output: str, errors: str) -> None:
    os.chdir(folder)
    for stream, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.orig_argv = [sys.executable, *arguments]
    sys.path[0] = folder  # where this file's was
    option, what, *rest = arguments
    if option == "-m":
        sys.argv = [what, *rest]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *rest]
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    _serve()
