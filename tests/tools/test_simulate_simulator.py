"""`make sim`: what it prints of a case that is right, of one that is not, and its timeline."""

import json
import subprocess
import sys
from collections import Counter

import pytest

import configs
from build_tools import sim
from build_tools.settings import ROOT, BuildError
from tests.families.attention import cases as attention_cases
from tests.families.norm import cases as norm_cases
from tests.tools import families, simulate
from thunderkittens import _loader

pytestmark = pytest.mark.skipif(
    not _loader.SIMULATOR.is_file(),
    reason="the simulator is not built (python -m build_tools simulator)",
)
FAMILIES = [kernel.name for kernel in configs.KERNELS]
KERNEL = "attention_consumer.cuh"


def run(monkeypatch, words: str) -> int:
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")  # restored at the end: simulate sets it
    return simulate.main(words.split())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_case_of_each_family(family, monkeypatch, capsys):
    small = families.modules("cases.py")[family][0].SMALL
    assert run(monkeypatch, f"{family} {small} --policy random:3") == 0
    printed = capsys.readouterr().out
    assert "random:3, inputs of seed 0" in printed and " s: " in printed and " × " in printed
    assert "right: each element is within its bound" in printed


def test_an_op_stands_for_its_family(monkeypatch, capsys):
    assert run(monkeypatch, "layer_norm --width 8 --leading 2,3 --eps 0.5") == 0
    assert "norm 2x3x8,bf16,eps=0.5: eager" in capsys.readouterr().out


def test_an_op_has_a_case_of_its_own(monkeypatch, capsys):
    assert run(monkeypatch, "add_layer_norm --width 72 --p 0.5 --facts") == 0
    printed = capsys.readouterr().out
    assert "norm add_layer_norm,20x72,bf16,p=0.5: eager" in printed
    assert "norm_backward_narrow: " in printed


def test_wrong_numbers(monkeypatch, capsys):
    right = norm_cases.run_case
    monkeypatch.setattr(norm_cases, "run_case", lambda *a: [t + 1 for t in right(*a)])
    assert run(monkeypatch, "norm --width 8") == 1
    assert "wrong numbers: y" in capsys.readouterr().out


def test_a_report(monkeypatch, capsys):
    def fails(*_):
        raise RuntimeError("attention: DEADLOCK: no thread can run")

    monkeypatch.setattr(attention_cases, "run_case", fails)
    assert run(monkeypatch, "attention") == 1
    assert "s, then:\nattention: DEADLOCK: no thread can run" in capsys.readouterr().out


def test_a_call_that_is_refused(monkeypatch, capsys):
    assert run(monkeypatch, "norm --dtype fp32") == 1
    assert "layer_norm: weight must have dtype float32" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", f"KERNEL must be one of {', '.join(FAMILIES)}, got ''"),
        ("atention", f"KERNEL must be one of {', '.join(FAMILIES)}, got 'atention'"),
        ("norm --policy slow", "backend: policy must be one of eager, lazy, random, got 'slow'"),
        ("norm --block 3", "backend: block must be None without trace, got 3"),
    ],
)
def test_mistakes_of_the_caller(words, message, monkeypatch):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, words)
    assert str(stopped.value) == f"error: {message}"


def test_an_unknown_dtype(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "norm --dtype fp8")
    assert "--dtype: must be one of bf16, fp16, fp32, none, got 'fp8'" in capsys.readouterr().err


def test_facts(monkeypatch, capsys, tmp_path):
    file = tmp_path / "facts.json"
    for facts in ("--facts", f"--facts {file}"):
        assert run(monkeypatch, f"attention {attention_cases.SMALL} {facts}") == 0
        printed = capsys.readouterr().out
        assert "attention_forward: 1 × 1 × 1 blocks of 512 threads" in printed
        assert "0 of them for bank conflicts" in printed
        assert any(
            line.split()[:2] == [f"{KERNEL}:{line_of('warpgroup::mma_AB_row_sums(o')}", "wgmma"]
            for line in printed.splitlines()
        )
    assert json.loads(file.read_text())["launches"][0]["instructions"]["tma_store"] == 3


def line_of(text: str) -> int:
    """Where the kernel says something."""
    source = (ROOT / "csrc/kernels/attention" / KERNEL).read_text()
    return source[: source.index(text)].count("\n") + 1


@pytest.mark.parametrize("policy", ["eager", "lazy", "random:1"])
def test_timeline(policy, monkeypatch, tmp_path, capsys):
    """Its spans are those that the facts count, on rows where none overlaps another."""
    trace, facts = tmp_path / "t.json", tmp_path / "facts.json"
    words = f"attention --rows 64 --keys 200 --key-heads 1 --trace {trace} --facts {facts}"
    assert run(monkeypatch, f"{words} --policy {policy}") == 0
    assert f"timeline: {trace}" in capsys.readouterr().out
    events = json.loads(trace.read_text())["traceEvents"]
    (process,) = (e["args"]["name"] for e in events if e["name"] == "process_name")
    assert process == f"attention_forward, block (0, 0, 0), {policy}"
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"])
    counted = Counter(e["name"] for e in spans)
    executed = json.loads(facts.read_text())["launches"][0]["instructions"]
    for name in ("tma_load", "tma_store"):
        assert counted[name] == executed[name]
    products = sum(count for name, count in counted.items() if name.startswith("m64n"))
    assert products == executed["wgmma"]
    ends: dict[int, int] = {}
    for e in spans:
        assert ends.get(e["tid"], 0) <= e["ts"], f"two at once: {rows[e['tid']]}, {e}"
        ends[e["tid"]] = e["ts"] + e["dur"]
    assert {f"warp {w:>2}" for w in range(16)} <= set(rows.values())
    waits = [e for e in spans if e["name"].startswith("waits for mbarrier")]
    assert waits
    assert all(
        e["args"]["line"].startswith((f"{KERNEL}:", "attention_producer.cuh:")) for e in waits
    )
    assert (max(ends.values()) > len(spans)) and any("wgmma of" in row for row in rows.values())


def test_the_timeline_of_a_block_that_is_not_there(monkeypatch, tmp_path):
    trace = tmp_path / "t.json"
    assert run(monkeypatch, f"norm --width 8 --trace {trace} --block 1000") == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert "norm_forward_narrow has no block 1000" in [e["args"]["name"] for e in events]


def test_gdb_stops_one_lane():
    """At a line of the kernel, in thread 200, with that lane's variables."""
    place = f"{KERNEL}:{line_of('softmax.rescale_if_large(s, o, sum)')}"
    answers = ("print kittens::sim::self->thread", "print first", "print k_at", "bt 2", "kill")
    try:
        command = sim.debugger(f"{place} if kittens::sim::self->thread == 200", answers)
        library = sim.build_debug_library("attention")
    except BuildError as reason:
        pytest.skip(str(reason))
    case = "attention --rows 64 --keys 500 --key-heads 1 --threads 1"
    command += [sys.executable, "-m", "tests.tools.simulate", *case.split()]
    command += ["--library", str(library)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    for answer in ("::fixed_step<", "$1 = 200", "$2 = 0", "$3 = {stage = "):
        assert answer in done.stdout, done.stdout + done.stderr


def test_options_of_make_sim():
    assert sim.take_option("--gdb", ["--rows", "3", "--gdb", "x:1", "--causal"]) == (
        "x:1",
        ["--rows", "3", "--causal"],
    )
    assert sim.take_option("--gdb", ["--rows", "3"]) == (None, ["--rows", "3"])
    with pytest.raises(BuildError, match="--gdb needs a value"):
        sim.take_option("--gdb", ["--gdb"])
    with pytest.raises(BuildError, match="no family or op of configs.py is named 'x'"):
        sim.build_debug_library("x")


def test_the_command_runs_by_itself():
    command = [sys.executable, "-m", "tests.tools.simulate", "norm", "--width", "8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
