"""What has not changed, by content, is not built again; what has changed is."""

import os

import pytest

from build_tools import build_info, compile, precompiled, toolchain
from build_tools.settings import BuildError


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source and its header, to be compiled in a repository of their own."""
    monkeypatch.setattr(compile, "ROOT", tmp_path)
    monkeypatch.setenv("THUNDERKITTENS_BUILD_DIR", str(tmp_path / "build"))
    monkeypatch.setenv("THUNDERKITTENS_CACHE_GIB", "0")
    (tmp_path / "value.h").write_text("inline int value() { return 1; }\n")
    (tmp_path / "main.cpp").write_text('#include "value.h"\nint main() { return value(); }\n')
    for name in ("main.cpp", "value.h"):
        os.utime(tmp_path / name, (1, 1))
    return tmp_path


def job(*flags: str) -> compile.Job:
    compiler = toolchain.find_compiler()
    command = (compiler.path, *flags, "-c", "main.cpp", "-o", "{output}")
    return compile.Job(name="main", command=command, tool=compiler.name, log=".txt")


def was_built(*flags: str) -> bool:
    return compile.run([job(*flags)], "Compiling")[0].seconds > 0


def test_unchanged_is_not_built_again(tree):
    assert was_built()
    assert not was_built()


def test_touch_is_no_change(tree):
    was_built()
    for name in ("main.cpp", "value.h"):
        os.utime(tree / name, (1, 1))
    assert not was_built()


def test_header_change_builds_and_its_return_too(tree):
    was_built()
    header = tree / "value.h"
    old = header.read_text()
    header.write_text("inline int value() { return 2; }\n")
    assert was_built()
    header.write_text(old)
    assert was_built()


def test_edit_during_the_build_builds_again(tree, monkeypatch):
    clock = iter([0.0, 2.0, 2.0, 3.0])  # the files are of 1.0
    monkeypatch.setattr(compile.time, "time", lambda: next(clock))
    assert was_built()
    assert was_built()
    assert not was_built()


def test_flags_have_objects_of_their_own(tree):
    assert was_built()
    assert was_built("-O2")
    assert not was_built()


def test_lost_files_are_made_again(tree):
    was_built()
    job().log_path.unlink()
    assert was_built()
    job().output.unlink()
    assert was_built()
    (tree / "value.h").rename(tree / "gone.h")
    with pytest.raises(BuildError):
        was_built()


def test_headers_that_are_precompiled_count(tree, monkeypatch):
    if not toolchain.find_compiler().name.startswith("g++"):
        pytest.skip("only g++ precompiles them")
    monkeypatch.setattr(precompiled, "ROOT", tree)
    (tree / "all.h").write_text('#include "value.h"\n')
    os.utime(tree / "all.h", (1, 1))
    (tree / "main.cpp").write_text("int main() { return value(); }\n")
    os.utime(tree / "main.cpp", (1, 1))
    compiler = toolchain.find_compiler()
    words = (compiler.path, "-x", "c++", "-c", "all.h", "-o", "{output}")
    header = precompiled.header(compile.Job(name="all", command=words, tool=compiler.name))
    with_it = precompiled.begin_with(job(), *header)
    assert compile.run([with_it], "Compiling")[0].seconds > 0
    assert compile.run([with_it], "Compiling")[0].seconds == 0
    (tree / "value.h").write_text("inline int value() { return 2; }\n")
    assert compile.run([with_it], "Compiling")[0].seconds > 0
    assert compile.run([with_it], "Compiling")[0].seconds == 0


def test_tree_may_move(tree, tmp_path, monkeypatch):
    was_built()
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("main.cpp", "value.h"):
        (tree / name).rename(moved / name)
    monkeypatch.setattr(compile, "ROOT", moved)
    assert not was_built()


def test_failure_shows_the_compiler_and_ends_in_one_sentence(tree, capsys):
    (tree / "main.cpp").write_text("int main() { return undeclared; }\n")
    with pytest.raises(BuildError, match="could not build main: the messages above say why"):
        was_built()
    assert "undeclared" in capsys.readouterr().err


def test_warnings_are_errors_unless_installing(tree, monkeypatch):
    (tree / "main.cpp").write_text("int main() { int unused; return 0; }\n")
    with pytest.raises(BuildError):
        was_built("-Wall")
    monkeypatch.setenv("THUNDERKITTENS_WARNINGS", "show")
    assert was_built("-Wall")


def test_unknown_warnings_mode_is_refused(tree, monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_WARNINGS", "foo")
    with pytest.raises(BuildError, match="must be error or show, got 'foo'"):
        was_built()


def test_trees_that_share_a_build_folder_have_their_own_build_info(tree, monkeypatch):
    says = {"revision": "0123456789ab"}
    monkeypatch.setattr(build_info, "collect", lambda toolkit: says)
    first = build_info.write(None)
    says["revision"] = None
    second = build_info.write(None)
    assert first != second and "0123456789ab" in first.read_text()
    says["revision"] = "0123456789ab"
    assert build_info.write(None) == first


def test_install_replaces_only_what_differs(tmp_path):
    source, target = tmp_path / "a.so", tmp_path / "folder" / "b.so"
    source.write_bytes(b"1")
    assert compile.install(source, target)
    assert not compile.install(source, target)
    source.write_bytes(b"2")
    assert compile.install(source, target)
    assert target.read_bytes() == b"2"


def test_times_are_printed_per_kernel(tree, capsys):
    results = [
        compile.Result(compile.Job("a", (), "", kernel="norm/layer_norm sm_90a"), 2.0),
        compile.Result(compile.Job("b", (), "", kernel="norm/rms_norm sm_90a"), 0.0),
    ]
    compile.print_times(results)
    text = capsys.readouterr().out
    assert "norm/layer_norm sm_90a" in text and "2.0 s" in text and "unchanged" in text
