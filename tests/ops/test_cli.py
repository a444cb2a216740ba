"""python -m thunderkittens, and what a broken installation says."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

import configs
import thunderkittens
from build_tools import fingerprint, settings
from tests.tools.forked import Interpreter
from thunderkittens import _C, _loader, cli

PACKAGE = Path(thunderkittens.__file__).parent


INFO = ("-m", "thunderkittens", "info")


def python(*arguments, cwd=PACKAGE.parent) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd)


def test_info():
    done = python(*INFO)
    assert done.returncode == 0, done.stderr
    for part in (f"thunderkittens {thunderkittens.__version__}", torch.__version__, "layer_norm"):
        assert part in done.stdout


def test_info_as_json(forked):
    done = forked(*INFO, "--json", cwd=PACKAGE.parent)
    found = json.loads(done.stdout)
    assert found["problem"] is None
    assert found["running"]["torch"] == torch.__version__
    assert {op["op"] for op in found["ops"]} == {
        op for family in configs.KERNELS for op in family.ops
    }
    assert len({op["op"] for op in found["ops"]}) == len(found["ops"]), "an op is listed twice"
    for op in found["ops"]:
        assert op["devices"]["cpu"] == "torch"
        assert any(device.startswith("cuda") for device in op["devices"])


def test_reader_that_leaves():
    """As in `info | head -1`."""
    command = [sys.executable, *INFO]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=PACKAGE.parent)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_there_is_not_is_none():
    found = cli.collect()
    found["build"]["revision"] = found["running"]["driver"] = None
    found["running"]["torch_cuda"] = None
    text = cli.render(found)
    assert "None" not in text
    assert "revision none" in text and "CUDA of torch none, driver none" in text


@pytest.mark.parametrize("kind", ["Open Kernel Module for x86_64", "x86_64 Kernel Module"])
def test_driver_version(kind):
    line = f"NVRM version: NVIDIA UNIX {kind}  580.159.04  Release Build  (root@builder)\n"
    assert cli._driver_version(line) == "580.159.04"
    assert cli._driver_version("something else") is None


def test_no_driver_is_called_so():
    if cli.DRIVER.is_file() or torch.cuda.is_available():
        pytest.skip("there is a driver")
    if not cli.collect()["build"].get("kernels"):
        pytest.skip("no CUDA kernel is built in")
    assert _C.why_not("layer_norm", 0) == "no NVIDIA driver"


@pytest.fixture(scope="module")
def forked():
    """What `python` runs, without the seconds to import torch."""
    interpreter = Interpreter()
    yield interpreter.run
    interpreter.close()


@pytest.fixture
def copy(tmp_path):
    """A copy of the package to break; its parent is where to run."""
    ignored = shutil.ignore_patterns("__pycache__", "_simulator*.so", "include")
    return Path(
        shutil.copytree(PACKAGE, tmp_path / "thunderkittens", ignore=ignored, copy_function=link)
    )


def link(source: str, target: str) -> None:
    """The same file, which no test writes to: it puts another in its place."""
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy2(source, target)


def last_line(done: subprocess.CompletedProcess) -> str:
    assert done.returncode != 0
    return done.stderr.strip().splitlines()[-1]


def import_error(copy, run) -> str:
    return last_line(run("-c", "import thunderkittens", cwd=copy.parent))


def problems(copy, run) -> tuple[str, str]:
    """The error of an import, and what `info` says is wrong, which `info --json` says too."""
    commands = (("-c", "import thunderkittens"), INFO, (*INFO, "--json"))
    imported, text, data = (run(*words, cwd=copy.parent) for words in commands)
    assert (text.returncode, data.returncode) == (1, 1)
    assert "Traceback" not in text.stderr + data.stderr
    found = json.loads(data.stdout)
    assert found["ops"] == []
    assert text.stdout.endswith(f"The ops cannot be loaded: {found['problem']}.\n")
    return last_line(imported), found["problem"]


@pytest.mark.parametrize(
    ("library", "what"),
    [(_loader.LIBRARY, "the ops library"), (_loader.KERNELS, "the kernels' library")],
    ids=("ops", "kernels"),
)
def test_missing_library(copy, forked, library, what):
    (copy / "lib" / library.name).unlink()
    message, problem = problems(copy, forked)
    assert f"ImportError: thunderkittens: {what}" in message
    assert _loader.rebuild() in message
    assert problem.startswith(what)


@pytest.mark.parametrize(
    ("name", "size"),
    [("", 0), ("", 1000), ("", -1000), ("_kernels", 1000)],
)
def test_damaged_library(copy, forked, name, size):
    """Loading a file whose end is missing would kill the process."""
    library = copy / "lib" / f"libthunderkittens{name}.so"
    text = library.read_bytes()
    library.unlink()
    library.write_bytes(text[:size])
    message, problem = problems(copy, forked)
    assert f"{library.name} is damaged" in message
    assert _loader.rebuild() in message
    assert f"{library.name} is damaged" in problem


def test_as_a_user_sees_it(copy):
    """Of a process that has imported nothing before."""
    (copy / "lib" / _loader.LIBRARY.name).unlink()
    message, problem = problems(copy, python)
    assert "ImportError: thunderkittens: the ops library" in message
    assert problem.startswith("the ops library")


def test_broken_library(copy, forked):
    library = copy / "lib" / "libthunderkittens.so"
    text = library.read_bytes()
    library.unlink()
    library.write_bytes(b"not ELF" + text[7:])
    message, problem = problems(copy, forked)
    assert "the ops library cannot be loaded" in message
    assert _loader.rebuild() in message
    assert "the ops library cannot be loaded" in problem


def test_other_torch(copy, forked):
    """The version is read from the file before anything of it is loaded."""
    library = copy / "lib" / "libthunderkittens.so"
    built = _loader.built_for()["torch"]
    other = ("9" + built[1:]).encode()
    text = library.read_bytes().replace(f'"torch": "{built}'.encode(), b'"torch": "' + other)
    library.unlink()
    library.write_bytes(text)
    message = import_error(copy, forked)
    assert f"built for torch {other.decode().split('+')[0][: built.rfind('.')]}" in message
    assert f"but torch {'.'.join(torch.__version__.split('.')[:2])} is running" in message
    assert _loader.rebuild() in message
    assert message.endswith(
        f"or `{_loader.pip_install()} 'torch==9{minor(built)[1:]}.*'` to go to 9{minor(built)[1:]}"
    )


def test_kernels_of_another_build(copy, forked):
    """Their structs may differ, which the dynamic linker does not notice."""
    library = copy / "lib" / _loader.KERNELS.name
    headers = fingerprint.of(fingerprint.INCLUDE)
    text = library.read_bytes()
    assert headers.encode() in text
    library.unlink()
    library.write_bytes(text.replace(headers.encode(), b"of_others_12"))
    message, problem = problems(copy, forked)
    assert f"which its caller was compiled with, {settings.version()} " in message
    assert f"(headers {headers}), got {library} of" in message
    assert "(headers of_others_12)" in message
    assert _loader.rebuild() in message
    assert "the kernels' library must be that of the headers" in problem


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def test_no_torch(copy, forked):
    """The advice names the torch that it was built for: another would not do."""
    code = "import sys; sys.modules['torch'] = None; import thunderkittens"
    wanted = f"{_loader.pip_install()} 'torch=={minor(_loader.built_for()['torch'])}.*'"
    assert last_line(forked("-c", code, cwd=copy.parent)) == (
        f"ImportError: thunderkittens: PyTorch is not installed; run `{wanted}`"
    )


def test_the_advice_is_for_any_setuptools():
    """Without isolation pip would use the environment's, which may be too old or not there."""
    assert "--no-build-isolation" not in _loader.rebuild()
    assert shlex.split(_loader.rebuild())[0] in (sys.executable, "uv")


def test_in_place_the_command_builds_in_place(copy, forked):
    """There an installation elsewhere would not be what the source folder imports."""
    (copy / "lib" / "libthunderkittens.so").unlink()
    (copy.parent / "build_tools").mkdir()
    (copy.parent / "build_tools" / "ops.py").touch()
    assert f"run `cd {copy.parent} && {_loader.REBUILD_IN_PLACE}`" in import_error(copy, forked)


def test_built_for_is_what_the_library_says():
    from thunderkittens._info import BUILD

    assert _loader.built_for() == BUILD


def test_include_dir():
    assert (Path(thunderkittens.include_dir()) / "kittens.cuh").is_file()


def test_a_machine_with_a_gpu(monkeypatch):
    gpu = types.SimpleNamespace(
        name="NVIDIA L4", major=8, minor=9, shared_memory_per_block_optin=99 * 1024
    )
    found = cli.collect()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    found["gpus"] = cli._gpus()
    found["build"] = {**found["build"], "kernels": {"norm": ["sm_89"]}, "cuda": "13.0"}
    text = cli.render(found)
    assert "GPU 0    NVIDIA L4, sm_89, 99 KB of shared memory a block\n" in text
    assert "norm: sm_89" in text


@pytest.mark.gpu
def test_the_gpu_that_is_there():
    (gpu, *_) = cli.collect()["gpus"]
    assert gpu["architecture"] == "sm_90" and gpu["block_shared_kb"] == 227


def test_exports():
    assert thunderkittens.testing.assert_close is not None
    assert sorted(thunderkittens.__all__) == thunderkittens.__all__
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        thunderkittens.absent  # noqa: B018
