"""The package as others get it: wheels, installations, and what stops them."""

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from build_tools import backend, build_info, cuda, settings, toolchain
from build_tools.settings import ROOT

PARTS = ("build_tools", "csrc", "requirements", "thunderkittens")
MADE_BY_BUILDS = shutil.ignore_patterns("lib", "include", "_C.*.so", "__pycache__")
INCLUDE_TREE = shutil.ignore_patterns("__pycache__")


def run(*command: object, **variables: str) -> subprocess.CompletedProcess:
    """Runs a command away from the repository, with no network and with this build's objects."""
    hidden = ("PYTHONPATH", "PIP_FIND_LINKS")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    environment |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment |= {"THUNDERKITTENS_BUILD_DIR": str(settings.build_dir()), **variables}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd="/", env=environment, capture_output=True, text=True)


def succeed(*command: object, **variables: str) -> str:
    done = run(*command, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def pip_and_setuptools() -> None:
    if run(sys.executable, "-c", "import pip").returncode != 0:
        pytest.skip(f"pip is not installed beside {sys.executable}")
    if not backend._has_setuptools():
        pytest.skip("setuptools ≥ 70.1 is not installed (requirements/test.txt)")


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the source tree, with nothing that a build has made."""
    folder = tmp_path_factory.mktemp("source") / "thunderkittens"
    for part in PARTS:
        ignore = MADE_BY_BUILDS if part == "thunderkittens" else INCLUDE_TREE
        shutil.copytree(ROOT / part, folder / part, ignore=ignore)
    for name in ("configs.py", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    return folder


def make_environment(folder: Path, *packages: Path) -> Path:
    """Makes a virtual environment that sees some folders of packages, and returns its Python."""
    succeed(sys.executable, "-m", "venv", "--without-pip", folder)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "seen.pth").write_text("\n".join(map(str, packages)) + "\n")
    return folder / "bin" / "python"


@pytest.fixture
def python(tmp_path) -> Path:
    """The Python of an environment with torch, setuptools and pip, and without thunderkittens."""
    return make_environment(tmp_path / "environment", toolchain.find_torch().root.parent)


IMPORT = (
    "import thunderkittens, torch;"
    "y = thunderkittens.layer_norm(torch.arange(8.0).reshape(2, 4));"
    "print(thunderkittens.__file__, y.shape)"
)


@pytest.fixture(scope="module")
def wheel(tree, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    succeed(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, tree)
    (path,) = folder.glob("*.whl")
    return path


def test_wheel(wheel):
    platform = sysconfig.get_platform().replace("-", "_")
    assert wheel.name == f"thunderkittens-{version()}-py3-none-{platform}.whl"
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "thunderkittens/__init__.py",
        "thunderkittens/lib/libthunderkittens.so",
        "thunderkittens/lib/libthunderkittens_kernels.so",
        "thunderkittens/include/kittens.cuh",
        "thunderkittens/include/kittens/arch/thread.cuh",
        "thunderkittens/include/kittens/host/fingerprint.h",
        "thunderkittens/include/thunderkittens/kernels/attention.h",
        "thunderkittens/py.typed",
    ):
        assert name in names
    assert [name for name in names if name.endswith(".so")] == [
        "thunderkittens/lib/libthunderkittens.so",
        "thunderkittens/lib/libthunderkittens_kernels.so",
    ]
    folders = {name.split("/")[0] for name in names}
    assert folders == {"thunderkittens", f"thunderkittens-{version()}.dist-info"}
    assert not any("_simulator" in name or "/sim/" in name for name in names)


def version() -> str:
    try:
        return build_info.version(cuda.toolkit()[0])
    except settings.BuildError as error:
        pytest.skip(str(error))


def metadata(text: str) -> email.message.Message:
    return email.message_from_string(text)


def test_a_wheel_says_what_it_is_for(wheel):
    files = zipfile.ZipFile(wheel)
    torch = toolchain.find_torch().minor
    folder = f"thunderkittens-{version()}.dist-info"
    about = metadata(files.read(f"{folder}/METADATA").decode())
    assert re.fullmatch(rf"[\d.]+\+torch{re.escape(torch)}\.(cpu|cu\d+)", about["Version"])
    assert about["Requires-Dist"] == f"torch=={torch}.*"
    assert (about["Requires-Python"], about["License"]) == (">=3.10", "MIT")
    tags = metadata(files.read(f"{folder}/WHEEL").decode())
    assert tags["Tag"] == f"py3-none-{sysconfig.get_platform().replace('-', '_')}"
    assert tags["Root-Is-Purelib"] == "false"


@pytest.mark.parametrize(
    ("nvcc", "local"), [("13.0.88", "cu130"), ("12.9.1", "cu129"), ("", "cpu")]
)
def test_version_of_a_build(monkeypatch, nvcc, local):
    torch = toolchain.Torch(Path(), "2.17.3a0+git1234", "13.0")
    monkeypatch.setattr(toolchain, "find_torch", lambda: torch)
    toolkit = toolchain.Cuda("nvcc", nvcc, Path(), Path(), "PATH") if nvcc else None
    assert build_info.version(toolkit) == f"{settings.version()}+torch2.17.{local}"


def test_its_libraries_look_beside_the_package_alone(wheel, tmp_path):
    """No path of the machine that built it, and where pip puts torch and CUDA's runtime."""
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for library in tmp_path.glob("thunderkittens/lib/*.so"):
        text = succeed("readelf", "-d", library)
        paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text)
        paths = [path for found in paths for path in found.split(":")]
        assert all(path.startswith("$ORIGIN") for path in paths), (library, paths)
        if library.name == "libthunderkittens.so":
            assert paths == ["$ORIGIN", "$ORIGIN/../../torch/lib"]
        elif cuda.toolkit()[0] is not None:
            (path,) = paths
            runtime = toolchain.find_torch().root.parent / path.removeprefix("$ORIGIN/../../")
            assert not runtime.is_dir() or [*runtime.glob("libcudart.so*")], runtime


def test_no_library_is_for_one_python():
    if not shutil.which("nm"):
        pytest.skip("nm is not installed")
    for library in ("libthunderkittens.so", "libthunderkittens_kernels.so"):
        text = succeed("nm", "-D", "--undefined-only", settings.PACKAGE / "lib" / library)
        assert not re.search(r"\bU _?Py", text), library


LAUNCHES = """
#include <kittens.cuh>
#include <kittens/host/launch.cuh>

__global__ void writes(int* out) { out[kittens::arch::block_x()] = 1; }

int main() {
  const int64_t blocks = kittens::host::multiprocessors();
  kittens::host::launch(writes, {.grid = {blocks}, .block = {32}}, nullptr, nullptr);
}
"""


def test_packaged_headers_need_no_library(wheel, tmp_path):
    """A program of the user's: nvcc, -I include_dir(), CUDA's runtime, and nothing else of ours."""
    try:
        toolkit, reason = cuda.toolkit()
    except settings.BuildError as error:
        toolkit, reason = None, str(error)
    if toolkit is None:
        pytest.skip(reason)
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    include = tmp_path / "site" / "thunderkittens" / "include"
    manual = (ROOT / "docs/tiles.md").read_text()
    kernel = re.findall(r"^```cpp\n(.*?)^```", manual, re.M | re.S)[0]
    compiler = toolchain.find_compiler().path
    nvcc = (toolkit.nvcc, "-std=c++20", "-arch=sm_90a", "-ccbin", compiler, "-I", include, "-c")
    for name, text in (("kernel", kernel), ("program", LAUNCHES)):
        (tmp_path / f"{name}.cu").write_text(text)
        succeed(*nvcc, tmp_path / f"{name}.cu", "-o", tmp_path / f"{name}.o")
    objects = (tmp_path / "kernel.o", tmp_path / "program.o")
    succeed(compiler, "-o", tmp_path / "program", *objects, toolkit.cudart)


def test_old_setuptools_is_one_sentence(monkeypatch):
    monkeypatch.setattr(backend.importlib.metadata, "version", lambda name: "65.5.0")
    with pytest.raises(SystemExit) as caught:
        backend._setuptools()
    sentence = str(caught.value)
    assert sentence.startswith("error: setuptools: found 65.5.0, needed ≥ 70.1; install it with `")
    assert sentence.endswith("or leave out --no-build-isolation")


@pytest.mark.parametrize("isolation", [[], ["--no-build-isolation"]], ids=["isolated", "direct"])
def test_pip_install_without_network(tree, python, isolation):
    succeed(python, "-m", "pip", "install", *isolation, tree)
    assert str(python.parent.parent) in succeed(python, "-c", IMPORT)


def test_editable_install(tree, python):
    succeed(python, "-m", "pip", "install", "-e", tree)
    assert str(tree / "thunderkittens" / "__init__.py") in succeed(python, "-c", IMPORT)


def test_setup_py_install(tree, python):
    succeed(python, tree / "setup.py", "install")
    assert str(python.parent.parent) in succeed(python, "-c", IMPORT)


def test_source_archive(tree, tmp_path):
    succeed(python := sys.executable, "-c", "import setuptools")
    hook = f"from build_tools import backend; backend.build_sdist({str(tmp_path)!r})"
    code = f"import os, sys; os.chdir({str(tree)!r}); sys.path.insert(0, '.'); {hook}"
    succeed(python, "-c", code)
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    names = {str(path.relative_to(tmp_path)) for path in (tmp_path / "unpacked").rglob("*")}
    about = metadata((tmp_path / "unpacked" / archive.name[:-7] / "PKG-INFO").read_text())
    assert (about["Version"], about["Requires-Dist"]) == (settings.version(), "torch>=2.11")
    top = f"unpacked/thunderkittens-{settings.version()}"
    files = ("configs.py", "build_tools/backend.py", "csrc/include/kittens.cuh")
    for name in (*files, "thunderkittens/py.typed"):
        assert f"{top}/{name}" in names
    assert not any(name.endswith(".so") for name in names)
    # By its version, as from an index: pip takes no build with another one.
    wanted = f"thunderkittens=={settings.version()}"
    pip = (python, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir", "-f", tmp_path)
    succeed(*pip, "-w", tmp_path / "wheels", wanted)
    (wheel,) = tmp_path.glob("wheels/*.whl")
    assert wheel.name.startswith(f"thunderkittens-{settings.version()}-py3-none-")


def test_install_without_torch_is_one_sentence(tree, tmp_path):
    folder = tmp_path / "packages"
    folder.mkdir()
    site = toolchain.find_torch().root.parent
    for path in (*site.glob("pip*"), *site.glob("setuptools*"), *site.glob("_distutils_hack")):
        (folder / path.name).symlink_to(path)
    python = make_environment(tmp_path / "environment", folder)
    if run(python, "-c", "import pip").returncode != 0:
        pytest.skip("pip is installed apart from torch")
    done = run(python, "-m", "pip", "install", tree, PATH="/usr/bin:/bin")
    assert done.returncode != 0
    (sentence,) = [line for line in (done.stdout + done.stderr).splitlines() if "PyTorch:" in line]
    assert "error: PyTorch: found none beside" in sentence
    assert "needed ≥ 2.11; install it with `" in sentence
    assert sentence.endswith(f"`{python} -m pip install 'torch>=2.11'`")


def test_install_beside_an_old_torch_is_one_sentence(tree, tmp_path):
    """`pip install torch` would leave the old one there."""
    old = tmp_path / "packages" / "torch"
    old.mkdir(parents=True)
    (old / "__init__.py").touch()
    (old / "version.py").write_text("__version__ = '2.9.1+cpu'\n")
    python = make_environment(tmp_path / "environment", old.parent)
    code = "from build_tools import backend; backend.get_requires_for_build_wheel()"
    done = run(python, "-c", f"import os; os.chdir({str(tree)!r})\n{code}", PYTHONPATH=str(tree))
    assert done.stderr == (
        f"error: PyTorch: found 2.9.1+cpu in {old}, needed ≥ 2.11; install it with "
        f"`uv pip install --python {python} 'torch>=2.11'`\n"
    )


def test_import_beside_another_torch_is_one_sentence():
    code = "import torch; torch.__version__ = '2.99.0'; import thunderkittens"
    done = run(sys.executable, "-c", code, PYTHONPATH=str(ROOT))
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    built = toolchain.dotted(toolchain.version_tuple(toolchain.find_torch().version)[:2])
    assert "2.99" in last and built in last and "`" in last


def needed(library: str) -> set[str]:
    """The libraries that a library of the package says it needs."""
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    text = succeed("readelf", "-d", ROOT / "thunderkittens" / "lib" / library)
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))


def test_ops_need_neither_driver_nor_python():
    libraries = needed("libthunderkittens.so")
    assert {"libc10.so", "libthunderkittens_kernels.so"} <= libraries
    assert not [name for name in libraries if re.match("libcuda|libpython|libtorch_python", name)]


def test_kernels_need_cuda_s_runtime_alone():
    system = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2"}
    others = needed("libthunderkittens_kernels.so") - system
    assert all(name.startswith("libcudart.so") for name in others), others


def test_there_is_one_cxx_library() -> None:
    """A second copy inside a library would crash torch's process when it formats a number."""
    if not shutil.which("nm"):
        pytest.skip("nm is not installed")
    libraries = [*settings.PACKAGE.glob("lib/*.so")]
    assert libraries
    for library in libraries:
        defined = succeed("nm", "--dynamic", "--defined-only", library)
        assert " T _ZNSolsEi" not in defined and " T _ZNSs" not in defined, library
        assert "libstdc++.so.6" in succeed("readelf", "-d", library), library
