"""The commands behind the Makefile: `python -m build_tools COMMAND`."""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys

from build_tools import settings
from build_tools.settings import PACKAGE, ROOT, BuildError

PURPOSES = ("demo", "test", "lint", "docs")  # the files of requirements/


def main() -> int:
    """Runs one command; a BuildError ends in its one sentence."""
    arguments, rest = _parse()
    try:
        return COMMANDS[arguments.command](arguments, rest) or 0
    except BuildError as error:
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parse() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m build_tools", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, function in COMMANDS.items():
        about = function.__doc__.splitlines()[0]
        command = commands.add_parser(name, help=about, add_help=name not in OWN_HELP)
        if name == "cache":
            command.add_argument("--clear", action="store_true", help="empty it")
        if name == "costs":
            command.add_argument("--write", action="store_true", help="keep kernels and bytes")
        if name == "sim":
            command.add_argument("kernel", help="a family of kernels, such as attention")
        if name == "test":
            command.add_argument("--tier", type=int, choices=range(1, 6))
        if name == "new":
            command.add_argument("op", metavar="FAMILY/OP")
        if name in ("test", "environment"):
            command.add_argument("--torch", metavar="VERSION")
        if name == "environment":
            command.add_argument("--purpose", choices=PURPOSES, default="test")
    arguments, rest = parser.parse_known_args()
    if rest and arguments.command not in PASS_ON:
        parser.error(f"{arguments.command} takes no {' '.join(rest)}")
    return arguments, rest


def _ops(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Builds what the package loads, with CUDA kernels where there is an nvcc."""
    from build_tools import ops

    ops.build()


def _cuda(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Compiles the CUDA kernels alone."""
    from build_tools import compile, cuda

    toolkit, reason = cuda.toolkit()
    if toolkit is None:
        raise BuildError(reason)
    compile.print_times(compile.run(cuda.kernel_jobs(toolkit), "Compiling CUDA kernels"))


def _resources(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Compiles the CUDA kernels and writes the tables of their registers and shared memory."""
    from build_tools import resources

    print(*resources.write_tables(), sep="\n")


def _simulator(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Builds the kernels for the CPU."""
    from build_tools import simulator

    simulator.build()


def _all(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Builds everything."""
    _ops(arguments, rest)
    _simulator(arguments, rest)


def _environment(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Prints the Python to use, after installing the pinned packages if need be."""
    from build_tools import environment

    print(environment.prepare(arguments.purpose, arguments.torch))


def _missing_nvcc(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Prints the Python packages of the nvcc that is missing here, if it is."""
    from build_tools import environment

    print(environment.missing_nvcc())


def _test(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Sets up, builds, and runs the tests; further arguments go to pytest."""
    from build_tools import environment, suite

    environment.enter("test", arguments.torch)
    if importlib.util.find_spec("pytest") is None:
        raise BuildError(
            f"pytest: found none beside {sys.executable}, needed to run the tests; "
            f"install it with `{sys.executable} -m pip install -r requirements/test.txt`"
        )
    return suite.run(arguments.tier, rest)


def _tiles(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Sets up, builds, and runs the C++ tests of the tile layer; parts of names choose some."""
    from build_tools import environment
    from tests.tools import tiles

    environment.enter("test")
    return tiles.suite(rest)


def _conformance(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Compares the simulator with what hardware answered, or asks a GPU (--regenerate)."""
    from tests.tools import conformance

    return conformance.main(rest)


def _sim(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Sets up, builds, and runs one case of a kernel in the simulator; arguments go to the case."""
    from build_tools import environment, sim

    environment.enter("test")
    return sim.run(arguments.kernel, rest)


def _mutation(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Sets up, and judges mutants of the kernels in the simulator; arguments go to that job."""
    from build_tools import environment

    environment.enter("test")
    command = [sys.executable, "-m", "tests.mutation", *rest]
    return subprocess.run(command, cwd=ROOT, env=environment.variables()).returncode


def _new(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Writes the files of a new family, with one element-wise op that works."""
    from build_tools import new

    new.run(arguments.op)


def _demo(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Sets up, builds, and generates text; further arguments go to the demo."""
    import configs
    from build_tools import environment, ops

    environment.enter("demo")
    os.environ["THUNDERKITTENS_KERNELS"] = ",".join(ops.families_for(configs.DEMO_KERNELS))
    ops.build()
    command = [sys.executable, "demos/generate/generate.py", *rest]
    return subprocess.run(command, cwd=ROOT, env=environment.variables()).returncode


def _cpp(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Sets up, and builds and runs the kernels' demo in C++; --simulator: on the CPU."""
    from build_tools import cpp, environment

    environment.enter("demo")
    return cpp.run(rest)


def _train(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Sets up, and builds and runs the trainer in C++; --simulator: on the CPU."""
    from build_tools import environment, train

    environment.enter("demo")
    return train.run(rest)


def _bench(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Sets up, builds, and runs the benchmarks; further arguments go to them."""
    from build_tools import environment, ops

    environment.enter("test")
    ops.build()
    command = [sys.executable, "-m", "benchmarks", *rest]
    return subprocess.run(command, cwd=ROOT, env=environment.variables()).returncode


def _docs(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Sets up, builds, and writes the documentation as a site of HTML into build/site."""
    from build_tools import docs, environment, ops

    environment.enter("docs")
    ops.build()
    print(f"The documentation: {docs.build()}")


def _figures(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Draws the pictures of docs/tiles.md."""
    from build_tools import figures

    print(*figures.write(), sep="\n")


def _wheel(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Sets up, and makes the wheel; --check installs it in a fresh environment and tests it."""
    from build_tools import environment, wheel

    environment.enter("test")
    return wheel.run(rest)


def _lint(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Checks the code's form."""
    from build_tools import environment, lint

    environment.enter("lint")
    lint.check()


def _format(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Repairs the code's form."""
    from build_tools import environment, lint

    environment.enter("lint")
    lint.check(repair=True)


def _costs(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Shows what each family of kernels costs; --write keeps kernels and bytes of objects."""
    from build_tools import costs

    if arguments.write:
        costs.write()
    print(costs.table())


def _cache(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Says what is kept between source trees, or empties it (--clear)."""
    from build_tools import cache

    if arguments.clear:
        cache.clear()
    print(cache.describe())


def _clean(arguments: argparse.Namespace, rest: list[str]) -> None:
    """Removes what builds have made; the virtual environments stay."""
    folders = [settings.build_dir(), PACKAGE / "lib", PACKAGE / "include", ROOT / "dist"]
    for folder in [*folders, *ROOT.glob("*.egg-info")]:
        shutil.rmtree(folder, ignore_errors=True)


COMMANDS = {
    "ops": _ops,
    "cuda": _cuda,
    "resources": _resources,
    "simulator": _simulator,
    "all": _all,
    "environment": _environment,
    "missing-nvcc": _missing_nvcc,
    "test": _test,
    "tiles": _tiles,
    "conformance": _conformance,
    "sim": _sim,
    "mutation": _mutation,
    "new": _new,
    "demo": _demo,
    "cpp": _cpp,
    "train": _train,
    "bench": _bench,
    "docs": _docs,
    "figures": _figures,
    "wheel": _wheel,
    "lint": _lint,
    "format": _format,
    "cache": _cache,
    "costs": _costs,
    "clean": _clean,
}
# They pass on what is not theirs, as to pytest.
PASS_ON = (
    "test",
    "tiles",
    "conformance",
    "sim",
    "mutation",
    "demo",
    "cpp",
    "train",
    "bench",
    "wheel",
)
OWN_HELP = ("mutation", "demo", "train", "bench")  # whose --help is that of what they run


if __name__ == "__main__":
    sys.exit(main())
