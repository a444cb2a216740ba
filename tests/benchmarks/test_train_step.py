"""The benchmark of a whole training step, of a model that a CPU steps in a blink."""

import pytest
import torch

from benchmarks import bench_train_step as bench
from benchmarks import harness, peers, results
from benchmarks.harness import COMPILED, OURS, WrongResult


class Clock:
    """Steps each contender once and says how long it took."""

    def sustained(self, steps):
        for step in steps.values():
            step()
        return {name: 1e-3 * (2 + i) for i, name in enumerate(steps)}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    sizes = {"LAYERS": 2, "WIDTH": 32, "HEADS": 2, "VOCABULARY": 64, "BATCH": 4, "LENGTH": 64}
    for name, value in sizes.items():
        monkeypatch.setattr(bench, name, value)
    monkeypatch.setattr(harness, "DEVICE", "cpu")
    monkeypatch.setattr(harness, "matrix_product_rate", lambda timer: 700.0)
    monkeypatch.setattr(peers, "compiled", lambda function: function)


def test_step_and_warm_up_of_every_contender():
    step, wait = bench.measure(Clock())
    assert list(step.seconds) == list(wait.seconds) == list(bench.CONTENDERS)
    assert step.figure(OURS) == pytest.approx(bench.flops() / 2e-3 / 1e12)
    assert step.ratio() == 3  # torch's 6 ms to ours of 2: what is ours too is no peer
    assert [name for name in step.seconds if not harness.is_ours(name)] == [
        "torch",
        "torch.compile",
    ]
    assert wait.figure("torch") == wait.seconds["torch"] > 0
    table = results.table([wait])
    assert table.startswith("### `train_step_warm_up`: s\n") and " s** |" in table
    ours = f"{OURS} | {COMPILED} | ours, bf16 weights | ours, bf16 weights, compiled"
    assert f"| shape | dtype | {ours} | torch | torch.compile |\n" in table


def test_quick_compiles_nothing():
    step, _ = bench.measure(Clock(), quick=True)
    assert list(step.seconds) == [OURS, "ours, bf16 weights", "torch"]


def test_both_models_have_one_meaning_and_the_same_steps():
    tokens = bench.random_tokens(bench.BATCH)
    names = (OURS, "ours, bf16 weights", "torch")
    trainers = {name: bench.Trainer(name, tokens) for name in names}
    for _ in range(5):
        *ours, torchs = (trainer.step() for trainer in trainers.values())
        for name, one in zip(names, ours, strict=False):
            bench.agree(name, one, torchs)
    for name, one in zip(names, ours, strict=False):
        first = bench.Trainer(name, tokens).step()
        assert one[0] < first[0] - 0.001  # it learns


@pytest.mark.parametrize("field", bench.Ops._fields)
def test_a_wrong_op_is_found_before_anything_is_timed(field, monkeypatch):
    right = getattr(bench.OPS[OURS], field)

    def wrong(*given):
        result = right(*given)
        return (1.05 * result[0], result[1]) if isinstance(result, tuple) else 1.05 * result

    monkeypatch.setitem(bench.OPS, OURS, bench.OPS[OURS]._replace(**{field: wrong}))
    with pytest.raises(WrongResult, match="from float64, torch's"):
        next(bench.measure(None))


def test_first_steps_that_differ_are_found():
    with pytest.raises(WrongResult, match="gradient norm of peer is 1.01, torch's 1$"):
        bench.agree("peer", (torch.tensor(2.0), torch.tensor(1.01)), (2.0, 1.0))


def test_flops_of_gpt2():
    """By hand: 123.6 M weights in products, attention 7.4 % of the rest."""
    assert bench.flops() < 1e9
    with pytest.MonkeyPatch.context() as patch:
        sizes = {"LAYERS": 12, "WIDTH": 768, "VOCABULARY": 50304, "BATCH": 64, "LENGTH": 1024}
        for name, value in sizes.items():
            patch.setattr(bench, name, value)
        assert bench.flops() == pytest.approx(52.3e12, rel=1e-3)
