"""The program without Python and torch: right in the simulator, and it would notice otherwise."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from build_tools import cpp, settings, simulator
from build_tools.settings import ROOT

SOURCE = ROOT / cpp.SOURCE


@pytest.fixture(scope="module")
def library() -> Path:
    path = settings.PACKAGE / "lib" / simulator.LIBRARY
    if not path.is_file():
        pytest.skip("the simulator is not built")
    return path


def run(program: Path) -> subprocess.CompletedProcess:
    return subprocess.run([program], capture_output=True, text=True, timeout=120)


def test_results_are_right_and_nothing_of_torch_is_there(library):
    program = cpp.build(simulated=True)
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr
    ops = re.findall(r"^(\w+) .* largest error (\S+), allowed (\S+)$", done.stdout, re.M)
    assert [op for op, *_ in ops] == ["layer_norm"] * 3 + ["attention"] + ["cross_entropy"] * 2
    assert all(0 < float(error) <= float(allowed) for _, error, allowed in ops)
    if shutil.which("readelf"):
        text = subprocess.run(["readelf", "-d", program], capture_output=True, text=True).stdout
        names = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
        assert "libthunderkittens_kernels.so" in names
        assert not [name for name in names if re.search("torch|c10|python", name)]


WRONG = {
    "attention_sees_ahead": (".right = 0,", ".right = 1,"),
    "another_gradient": (".dy = dy_in.data(),", ".dy = x_in.data(),"),
    "z_loss": (".gradient_stride = kWidth,", ".gradient_stride = kWidth, .z_loss = 0.01,"),
}


def changed(name: str, right: str, wrong: str) -> Path:
    """The program with another text in one place."""
    text = SOURCE.read_text()
    assert text.count(right) == 1
    source = settings.build_dir() / "generated" / f"cpp_{name}.cpp"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text.replace(right, wrong))
    return cpp.build_program(source.relative_to(ROOT), None, settings.PACKAGE)


@pytest.mark.parametrize("mistake", WRONG)
def test_what_is_wrong_is_noticed(library, mistake):
    assert run(changed(mistake, *WRONG[mistake])).returncode == 1


def test_what_no_kernel_takes_is_refused_in_words(library):
    done = run(changed("refused", ".head_dim = kDim,", ".head_dim = 60,"))
    assert done.returncode == 1
    assert done.stderr == "attention_forward: head dimension 60 is not one of 8, 16 … 256\n"
