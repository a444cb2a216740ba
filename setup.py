"""Packages thunderkittens: configs.py says what to build, build_tools builds it."""

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)  # from wherever it was called
os.environ.setdefault("THUNDERKITTENS_WARNINGS", "show")  # a user's compiler may be newer
sys.path.insert(0, str(ROOT))

import setuptools  # noqa: E402
from setuptools.command.build_py import build_py  # noqa: E402
from setuptools.command.install import install  # noqa: E402

from build_tools import build_info, cuda, fingerprint, ops, settings, toolchain  # noqa: E402

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # an older one: build_tools/backend.py says so where wheels are made
    bdist_wheel = None

READS_PYPROJECT = (61, 0)  # the first setuptools that does


def metadata() -> dict:
    """Returns the version and what is required: of the sources, or of a build against this torch.

    Torch's C++ interface changes with its minor version, so a build fits that one alone. Written as
    a prefix, for development versions such as 2.11.0a0 are older than 2.11 and fit too.
    """
    if "sdist" in sys.argv[1:]:
        minimum = toolchain.dotted(settings.MINIMUM_TORCH)
        return {"version": settings.version(), "install_requires": [f"torch>={minimum}"]}
    toolkit, _ = cuda.toolkit()
    torch = toolchain.find_torch()
    return {
        "version": build_info.version(toolkit),
        "install_requires": [f"torch=={torch.minor}.*"],
    }


def copy_headers(folder: Path) -> None:
    """Copies the headers for nvcc; the simulator's twins need csrc/sim, which is not packaged."""
    shutil.copytree(ROOT / "csrc" / "include", folder, ignore=shutil.ignore_patterns("sim"))
    shutil.copy(fingerprint.write() / fingerprint.HEADER, folder / fingerprint.HEADER)


class BuildWithLibraries(build_py):
    """Builds the libraries, and puts them and the headers beside the Python files."""

    def run(self) -> None:
        """Builds into the package's folder in the build tree; in place for an editable install."""
        if getattr(self, "editable_mode", False):
            ops.build()
            super().run()
            return
        package = Path(self.build_lib, "thunderkittens").resolve()
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        ops.build(package)
        copy_headers(package / "include")


class PlainInstall(install):
    """`python setup.py install` without eggs, and without fetching what is required."""

    def finalize_options(self) -> None:
        """Chooses the installation that setuptools makes for package managers."""
        super().finalize_options()
        self.single_version_externally_managed = True


class BinaryDistribution(setuptools.Distribution):
    """Has compiled code, so its wheel is for one platform."""

    def has_ext_modules(self) -> bool:
        """Returns True: build_tools makes the libraries."""
        return True


commands = {"build_py": BuildWithLibraries, "install": PlainInstall}

if bdist_wheel:

    class WheelForEveryPython(bdist_wheel):
        """The libraries know no Python, so neither does the wheel's tag."""

        def get_tag(self) -> tuple[str, str, str]:
            """Returns the tag of a wheel for this platform and any Python 3."""
            return "py3", "none", super().get_tag()[2]

    commands["bdist_wheel"] = WheelForEveryPython

try:
    if toolchain.version_tuple(setuptools.__version__) < READS_PYPROJECT:
        raise settings.BuildError(
            f"setuptools: found {setuptools.__version__}, needed ≥ "
            f"{toolchain.dotted(READS_PYPROJECT)}; run `{toolchain.pip()} .` instead, which gets "
            "one for the build"
        )
    setuptools.setup(license="MIT", distclass=BinaryDistribution, cmdclass=commands, **metadata())
except settings.BuildError as error:
    sys.exit(f"error: {error}")
