"""The benchmark of generating, of a model that a CPU runs in a blink."""

import pytest

from benchmarks import bench_generate as bench
from benchmarks import harness, results
from benchmarks.harness import OURS, MissingPeer, WrongResult

SIDE = {"to_first_token_ms": 20.0, "step_ms": 4.0}
REPORT = {"bytes_of_step": 16 * 10**9, "copy_bytes_per_second": 4.2e12, "thunderkittens": SIDE}


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(harness, "DEVICE", "cpu")
    monkeypatch.setattr(harness, "matrix_product_rate", lambda timer: 700.0)


def test_steps_and_prompts_of_every_side(monkeypatch):
    theirs = {"transformers": {"to_first_token_ms": 30.0, "step_ms": 40.0}}
    drawn = {"thunderkittens": {**SIDE, "step_ms": 5.0}}
    runs = []

    def generated(texts, *options):
        runs.append((texts, options))
        return REPORT | (theirs if options else drawn)

    monkeypatch.setattr(bench, "generated", generated)
    step, first, *others = bench.measure(timer=None)
    assert runs[:2] == [(bench.CASES[0], ("--compare",)), (bench.CASES[0], ())]
    assert len(others) == 2 * len(bench.CASES) - 2
    assert step.figure(OURS) == pytest.approx(4.0)  # 16 GB in 4 ms
    assert step.figure(bench.DRAWN) == pytest.approx(3.2)
    assert step.ratio() == 10 and first.ratio() == 1.5
    assert list(first.seconds) == [OURS, bench.PEER]
    table = results.table([step])
    assert "| 1 text × 1,024 tokens | bf16 | **4.00 (4 ms)** | 3.20 (5 ms) |" in table
    assert len(list(bench.measure(timer=None, quick=True))) == 2


def test_flops_of_a_prompt():
    """8.03 B weights, but for the embedding's 0.53; the vocabulary's for one token alone."""
    products = 2 * (8.03e9 - 2 * 0.525e9) * 1024
    attention = 32 * 2 * 4096 * 1024**2
    assert bench.prompt_flops(bench.Texts(1, 1024, 2)) == pytest.approx(
        products + attention + 2 * 0.525e9, rel=1e-3
    )


def test_figures_are_those_of_the_command(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr(bench, "SHAPE", "tiny")
    found = bench.generated(bench.Texts(2, 9, 3), "--compare")
    assert found["agreed"] and found["texts"] == 2 and found["tokens"] == 3
    assert min(found[side]["step_ms"] for side in ("thunderkittens", "transformers")) > 0


def test_what_the_command_refuses(monkeypatch):
    monkeypatch.setattr(bench, "SHAPE", "no-such-shape")
    with pytest.raises(MissingPeer, match="ended with 2: .*no-such-shape"):
        bench.generated(bench.Texts(1, 9, 3))


def test_texts_that_differ_are_a_wrong_result(monkeypatch):
    class Run:
        returncode, stdout, stderr = 1, "{}", "text 1: …\ncompare: 0 of 1 texts equal"

    monkeypatch.setattr(bench.subprocess, "run", lambda *words, **options: Run)
    with pytest.raises(WrongResult, match="1 text x 9 tokens: compare: 0 of 1"):
        bench.generated(bench.Texts(1, 9, 3), "--compare")
