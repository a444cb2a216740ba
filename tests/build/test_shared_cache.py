"""Source trees of one user take each other's objects and results, and none depends on it."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from build_tools import cache, compile, content, results, settings, toolchain
from build_tools.settings import ROOT, BuildError


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch) -> Path:
    """The folder of the cache, of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("THUNDERKITTENS_CACHE_GIB", raising=False)
    return tmp_path / "home" / "thunderkittens"


@pytest.fixture
def enter(tmp_path, monkeypatch):
    """Makes a source tree of a name the one that is built, with two headers and a source."""

    def make(name: str) -> Path:
        tree = tmp_path / name
        monkeypatch.setattr(compile, "ROOT", tree)
        monkeypatch.setenv("THUNDERKITTENS_BUILD_DIR", str(tree / "build"))
        if not tree.exists():
            (tree / "system").mkdir(parents=True)
            write(tree / "value.h", "inline int value() { return LIMIT; }\n")
            write(tree / "system/limit.h", '#define LIMIT 1\nextern "C" const char* where();\n')
            write(tree / "main.cpp", MAIN)
        return tree

    return make


MAIN = """#include <limit.h>
#include "value.h"
const char* where() { return __FILE__; }
int main() { return value(); }
"""


def write(path: Path, text: str) -> None:
    """As of an hour ago: what is edited during a build is not kept."""
    path.write_text(text)
    os.utime(path, (time.time() - 3600,) * 2)


def job(*flags: str, log: str = "", tool: str = "") -> compile.Job:
    compiler = toolchain.find_compiler()
    source = str(compile.ROOT / "main.cpp")
    command = (compiler.path, "-g", *flags, "-isystem", f"{compile.ROOT}/system")
    command = (*command, "-c", source, "-o", "{output}")
    return compile.Job(name="main", command=command, tool=tool or compiler.name, log=log)


def was_built(*flags: str, **options: str) -> bool:
    return compile.run([job(*flags, **options)], "Compiling")[0].seconds > 0


def entries(kept: Path, kind: str = "objects") -> list[Path]:
    return [path for path in kept.rglob("*") if path.is_file() and path.parent.parent.name == kind]


def test_a_second_tree_takes_the_first_one_s_objects(enter, capsys):
    enter("first")
    assert was_built(log=".txt")
    first = (job(log=".txt").output, job(log=".txt").log_path)
    enter("second")
    capsys.readouterr()
    assert not was_built(log=".txt")
    assert "Compiling: 1 of 1 from " in capsys.readouterr().out
    for one, other in zip(first, (job(log=".txt").output, job(log=".txt").log_path), strict=True):
        assert one != other and one.read_bytes() == other.read_bytes()
    assert not was_built(log=".txt")  # it is this tree's own now
    assert capsys.readouterr().out == ""


def test_objects_name_no_tree(enter):
    """Nor need they: two trees come to the same bytes, and so do what they link."""
    outputs = []
    for name in ("first", "second"):
        tree = enter(name)
        compile.run([job("-DNAME")], "Compiling")
        outputs.append(job("-DNAME").output.read_bytes())
        assert str(tree).encode() not in outputs[-1]
        assert b"./main.cpp" in outputs[-1]
        cache.clear()
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("header", ["value.h", "system/limit.h", "main.cpp"])
def test_what_has_changed_is_compiled_and_what_is_back_is_not(enter, header):
    enter("first")
    assert was_built()
    tree = enter("second")
    old = (tree / header).read_text()
    write(tree / header, old + "static int other;\n")
    assert was_built()
    enter("third")
    assert not was_built()
    write(enter("third") / header, old + "static int other;\n")
    compile.run([job()], "Compiling")
    tree = enter("fourth")
    write(tree / header, old + "static int other;\n")
    assert not was_built()


def test_flags_and_versions_have_objects_of_their_own(enter, monkeypatch):
    enter("first")
    assert was_built()
    enter("second")
    assert was_built("-O2")
    assert was_built(tool="another torch")
    enter("third")
    monkeypatch.setattr(content, "version", lambda compiler: "g++ of another distribution")
    assert was_built()
    enter("fourth")
    monkeypatch.setenv("CPATH", "/usr/include")
    assert was_built()


@pytest.mark.parametrize("damage", [b"", b"{}", b"flip", b"short", b"[1]\nx"])
def test_damaged_entries_are_made_again(enter, kept, damage):
    enter("first")
    was_built()
    (path,) = entries(kept)
    text = path.read_bytes()
    damaged = {b"flip": text[:-9] + bytes([text[-9] ^ 1]) + text[-8:], b"short": text[:-1]}
    path.write_bytes(damaged.get(damage, damage))
    enter("second")
    assert was_built()
    enter("third")
    assert not was_built()
    (lists,) = entries(kept, "sources")
    lists.write_bytes(damaged.get(damage, damage))
    enter("fourth")
    assert was_built()


def test_the_longest_unused_goes_first(kept, monkeypatch):
    for number in range(4):
        cache.write("results", f"key{number}", [bytes(1000)])
        path = kept / cache.FORMAT / "results" / "ke" / f"y{number}"
        os.utime(path, (number, number))
    assert cache.read("results", "key0")  # used: younger than all others now
    monkeypatch.setenv("THUNDERKITTENS_CACHE_GIB", f"{2500 / 2**30:.12f}")
    cache.trim()
    found = [number for number in range(4) if cache.read("results", f"key{number}")]
    assert found == [0, 3]


def test_builds_keep_to_the_limit(enter, kept, monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_CACHE_GIB", "0.000001")
    enter("first")
    assert was_built()
    assert sum(path.stat().st_size for path in entries(kept)) <= 1100


def test_what_killed_builds_have_left_goes(kept):
    cache.write("results", "key", [b"1"])
    old, young = (kept / cache.FORMAT / "results" / f"{age}{cache.SCRATCH}" for age in "ab")
    for path in (old, young):
        path.write_bytes(b"")
    os.utime(old, (1, 1))
    cache.trim()
    assert young.exists() and not old.exists() and cache.read("results", "key") == [b"1"]


def test_nothing_depends_on_the_folder(enter, kept, monkeypatch, capsys):
    kept.parent.mkdir()
    kept.write_text("a file, where the folder would be")
    enter("first")
    assert was_built()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cache.folder() is None
    enter("second")
    assert was_built()
    cache.clear()
    assert kept.is_file() and capsys.readouterr().err == ""


def test_it_can_be_off(enter, kept, monkeypatch):
    monkeypatch.setenv("THUNDERKITTENS_CACHE_GIB", "0")
    enter("first")
    assert was_built()
    results.write("ab" * 32, {"n": 1})
    assert not kept.exists()
    monkeypatch.setenv("THUNDERKITTENS_CACHE_GIB", "much")
    with pytest.raises(BuildError, match="must be a number of GiB ≥ 0, got 'much'"):
        cache.folder()


def test_warnings_are_seen_in_each_tree(enter, kept, monkeypatch, capfd):
    monkeypatch.setenv("THUNDERKITTENS_WARNINGS", "show")
    for name in ("first", "second"):
        write(enter(name) / "value.h", "inline int value() { int unused; return 0; }\n")
        assert was_built("-Wall")
        assert "unused" in capfd.readouterr().err
    assert not entries(kept)


def test_programs_that_name_a_folder_are_not_another_tree_s(enter):
    def link(*words: str) -> bool:
        (built,) = compile.run([job()], "Compiling")
        compiler = toolchain.find_compiler()
        command = (compiler.path, "-o", "{output}", "{inputs}", *words)
        inputs = (built.output,)
        linking = compile.Job("main", command, compiler.name, ".exe", inputs, depends=False)
        (program,) = compile.run([linking], "Linking")
        assert subprocess.run([program.output]).returncode == 1
        return program.seconds > 0

    for name, links in (("first", True), ("second", False)):
        tree = enter(name)
        assert link() == links
        assert link(f"-Wl,-rpath,{tree}/lib")


TWO = """
    import os, sys
    from pathlib import Path
    from build_tools import compile, toolchain
    compile.ROOT = Path(sys.argv[1])
    os.environ["THUNDERKITTENS_BUILD_DIR"] = f"{sys.argv[1]}/build"
    compiler = toolchain.find_compiler()
    jobs = []
    for name in "abcdef":
        (compile.ROOT / f"{name}.cpp").write_text(f"int {name}() {{ return 1; }}")
        os.utime(compile.ROOT / f"{name}.cpp", (1, 1))
        command = (compiler.path, "-c", f"{name}.cpp", "-o", "{output}")
        jobs.append(compile.Job(name, command, compiler.name))
    for result in compile.run(jobs, "Compiling"):
        sys.stdout.buffer.write(result.output.read_bytes())
"""


@pytest.mark.parametrize("gib", ["1", "0.000001"], ids=["roomy", "full"])
def test_two_at_once(tmp_path, monkeypatch, gib):
    monkeypatch.setenv("THUNDERKITTENS_CACHE_GIB", gib)
    running = []
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
        command = [sys.executable, "-c", textwrap.dedent(TWO), tmp_path / name]
        running.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE))
    said = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    objects = [text[text.index(b"\x7fELF") :].count(b"\x7fELF") for text in said]
    assert objects == [6, 6, 6]
    damaged = [path for path in entries(tmp_path / "home") if not path.stat().st_size]
    assert not damaged


def test_results_are_another_tree_s_too_but_for_ci(enter, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv(results.SINCE, raising=False)
    key = "ab" * 32
    enter("first")
    assert results.read(key) is None
    results.write(key, {"said": "RACE"})
    enter("second")
    assert results.read(key) == {"said": "RACE"}
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(results.SINCE, str(time.time() + 1))
    assert results.read(key) is None
    enter("first")
    assert results.read(key) is None
    monkeypatch.setenv(results.SINCE, str(time.time() - 60))  # one of this run of the tests
    assert results.read(key) == {"said": "RACE"}


def test_damaged_results_do_not_count(enter, kept):
    key = "cd" * 32
    enter("first")
    results.write(key, {"n": 1})
    for path in (*(settings.build_dir() / "results").rglob("*.json"), *entries(kept, "results")):
        path.write_text("[")
    assert results.read(key) is None


def test_the_command_says_how_full_it_is_and_empties_it(kept):
    cache.write("results", "key", [bytes(1000)])
    command = [sys.executable, "-m", "build_tools", "cache"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said == f"{kept}: 1 entries, 0.00 of 5 GiB\n"
    subprocess.run([*command, "--clear"], cwd=ROOT, check=True, capture_output=True)
    assert not kept.exists()
