"""The program without Python and torch: right in the simulator, and it would notice otherwise."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from build_tools import cpp, cxx, fingerprint, ops, settings, simulator, toolchain
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


OTHER = """#pragma once
namespace kittens::host {
inline constexpr char kVersion[] = "9.8.7";
inline constexpr char kHeaders[] = "0123456789ab";
}
"""


@pytest.fixture
def other_headers(monkeypatch, tmp_path):
    """Programs are compiled as if they were with the headers of another version."""
    header = tmp_path / fingerprint.HEADER
    header.parent.mkdir(parents=True)
    header.write_text(OTHER)
    monkeypatch.setattr(fingerprint, "write", lambda: tmp_path)


def test_a_library_of_other_headers_is_refused(library, other_headers):
    done = run(changed("other_headers", "int main() {", "int main()  {"))
    assert (done.returncode, done.stdout) == (1, "")
    kernels = settings.PACKAGE / "lib" / ops.KERNELS
    assert re.fullmatch(
        r"the kernels' library must be that of the headers which its caller was compiled with, "
        rf"9\.8\.7 \(headers 0123456789ab\), got {kernels} of {settings.version()} "
        r"\(headers [0-9a-f]{12}\); build both from the same sources\n",
        done.stderr,
    )


def test_a_library_that_does_not_say_its_version_is_refused(tmp_path):
    """One that is older than the check."""
    compiler = toolchain.find_compiler().path
    (tmp_path / "old.cpp").write_text("int of_another_time() { return 1; }\n")
    (tmp_path / "main.cpp").write_text(
        "#include <cstdio>\n"
        "#include <kittens/host/library.h>\n"
        "int main() try { kittens::host::check_library(); }\n"
        'catch (const kittens::host::error& e) { std::printf("%s", e.what()); }\n'
    )
    old, program = tmp_path / "libold.so", tmp_path / "main"
    flags = ["-std=c++20", "-Wall", "-Werror", *cxx.INCLUDES, *fingerprint.flags()]
    for command in (
        [compiler, "-shared", "-fPIC", tmp_path / "old.cpp", "-o", old],
        [compiler, *flags, tmp_path / "main.cpp", "-Wl,--no-as-needed", old, "-o", program],
    ):
        subprocess.run([*map(str, command)], cwd=ROOT, check=True)
    done = subprocess.run(
        [program], capture_output=True, text=True, env={"LD_LIBRARY_PATH": str(tmp_path)}
    )
    assert done.stdout.endswith(
        ", got one that does not say its version; build both from the same sources"
    )


def test_what_headers_mean_is_in_their_fingerprint_and_nothing_else(tmp_path):
    include = tmp_path / "include"
    shutil.copytree(fingerprint.INCLUDE, include)
    of_all = fingerprint.of(include)
    assert of_all == fingerprint.of(fingerprint.INCLUDE)

    def changed_in(name: str, right: str, wrong: str) -> str:
        path = include / name
        text = path.read_text()
        assert text.count(right) == 1
        path.write_text(text.replace(right, wrong))
        found = fingerprint.of(include)
        path.write_text(text)
        return found

    header = "thunderkittens/kernels/attention.h"
    assert changed_in(header, "// bf16 and fp16; head", "// All: heads") == of_all
    swapped = changed_in(header, "attention_strides o_strides, do_", "attention_strides do_, o_")
    included = changed_in("kittens/host/device.h", "int index = -1;", "int64_t index = -1;")
    assert len({of_all, swapped, included}) == 3
    assert changed_in("kittens/pipeline/ring.cuh", "#pragma once", "") == of_all


def test_what_no_kernel_takes_is_refused_in_words(library):
    done = run(changed("refused", ".head_dim = kDim,", ".head_dim = 60,"))
    assert done.returncode == 1
    assert done.stderr == "attention_forward: head dimension 60 is not one of 8, 16 … 256\n"
