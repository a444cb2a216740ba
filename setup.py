"""Packages thunderkittens: configs.py says what to build, build_tools builds it."""

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)  # from wherever it was called
os.environ.setdefault("THUNDERKITTENS_WARNINGS", "show")  # a user's compiler may be newer
sys.path.insert(0, str(ROOT))

from setuptools import Distribution, setup  # noqa: E402
from setuptools.command.build_py import build_py  # noqa: E402
from setuptools.command.install import install  # noqa: E402

from build_tools import ops, settings  # noqa: E402


def copy_headers(folder: Path) -> None:
    """Copies the headers for nvcc; the simulator's twins need csrc/sim, which is not packaged."""
    shutil.copytree(ROOT / "csrc" / "include", folder, ignore=shutil.ignore_patterns("sim"))


class BuildWithLibraries(build_py):
    """Builds the libraries, and puts them and the headers beside the Python files."""

    def run(self) -> None:
        """Builds into the package's folder in the build tree; in place for an editable install."""
        try:
            if self.editable_mode:
                ops.build()
                super().run()
                return
            package = Path(self.build_lib, "thunderkittens").resolve()
            shutil.rmtree(package, ignore_errors=True)
            super().run()
            ops.build(package)
            copy_headers(package / "include")
        except settings.BuildError as error:
            sys.exit(f"error: {error}")


class PlainInstall(install):
    """`python setup.py install` without eggs, and without fetching what is required."""

    def finalize_options(self) -> None:
        """Chooses the installation that setuptools makes for package managers."""
        super().finalize_options()
        self.single_version_externally_managed = True


class BinaryDistribution(Distribution):
    """Has compiled code, so its wheel is for one platform and one Python."""

    def has_ext_modules(self) -> bool:
        """Returns True: build_tools makes the extension module."""
        return True


setup(
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildWithLibraries, "install": PlainInstall},
)
