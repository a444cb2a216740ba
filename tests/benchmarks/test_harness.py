"""The harness itself, on the CPU, with a clock that we hold."""

import dataclasses
import functools
import json

import pytest
import torch

import configs
from benchmarks import bench_host, cli, harness, peers, records, report, results
from benchmarks.harness import OURS, Case, MissingPeer, Result, WrongResult
from tests.tools import families


class Clock:
    """Says that every call took `seconds`; counts how often it was asked."""

    def __init__(self, seconds):
        self.seconds, self.medians, self.graphs = seconds, 0, 0

    def median_time(self, fn):
        fn()
        self.medians += 1
        return self.seconds

    def sustained(self, fns):
        return {name: self.median_time(fn) for name, fn in fns.items()}

    def host_overhead(self, fn):
        fn()
        return self.seconds

    def graph_time(self, prepare):
        assert len(prepare()) == harness.GRAPH_CALLS
        self.graphs += 1
        return self.seconds


def doubled(offset=0.0, missing=""):
    def build(inputs):
        if missing:
            raise MissingPeer(missing)
        return lambda: (inputs["x"] * 2 + offset,)

    return build


def case(**contenders):
    return Case(
        op="double",
        shape="1024",
        dtype="fp32",
        work=8192,
        unit="TB/s",
        inputs=lambda seed: {"x": torch.full((1024,), float(seed + 1))},
        expected=lambda i: [(i["x"].double() * 2, 1e-6 * i["x"].double().abs())],
        contenders=contenders,
    )


@pytest.fixture(autouse=True)
def no_copy(monkeypatch):
    monkeypatch.setattr(harness, "copy_rate", lambda work, graph, timer: 4.0)


def test_long_calls_are_timed_by_events():
    clock = Clock(1e-3)
    result = harness.measure(case(**{OURS: doubled(), "peer": doubled()}), clock)
    assert (clock.medians, clock.graphs) == (2, 0)
    assert result.figure(OURS) == pytest.approx(8192 / 1e-3 / 1e12)
    assert (result.ratio(), result.yardstick, result.yardstick_rate) == (1.0, "copy", 4.0)


def test_short_calls_are_timed_in_a_graph():
    clock = Clock(5e-6)
    result = harness.measure(case(**{OURS: doubled(), "peer": doubled()}), clock)
    assert clock.graphs == 2
    assert "graph" in result.method


def test_what_runs_in_a_graph_is_timed_in_one_however_long_it_takes(monkeypatch):
    copies = []
    monkeypatch.setattr(
        harness, "copy_rate", lambda work, graph, timer: copies.append(graph) or 4.0
    )
    clock = Clock(1e-3)
    of_graph = dataclasses.replace(case(**{OURS: doubled(), "peer": doubled()}), in_graph=True)
    result = harness.measure(of_graph, clock)
    assert (clock.graphs, copies) == (2, [True])
    assert "graph" in result.method


def test_a_wrong_result_of_ours_is_an_error_and_is_not_timed():
    clock = Clock(1e-3)
    with pytest.raises(WrongResult, match="double 1024 fp32: output 0 of thunderkittens"):
        harness.measure(case(**{OURS: doubled(offset=1.0)}), clock)
    assert clock.medians == 0


def test_nan_is_a_wrong_result():
    with pytest.raises(WrongResult, match="inf times"):
        harness.measure(case(**{OURS: doubled(offset=float("nan"))}), Clock(1e-3))


def test_a_peer_that_is_absent_or_wrong_is_skipped_with_the_reason():
    contenders = {
        OURS: doubled(),
        "wrong": doubled(offset=1.0),
        "absent": doubled(missing="no wheel"),
    }
    result = harness.measure(case(**contenders), Clock(1e-3))
    assert list(result.seconds) == [OURS]
    assert result.skipped["absent"] == "no wheel"
    assert "error bound" in result.skipped["wrong"]


def test_command_line_without_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main([]) == 2
    assert capsys.readouterr().out.count("\n") == 1
    assert cli.main(["--list"]) == 0
    assert capsys.readouterr().out.split() == harness.families()
    assert cli.main(["nrm"]) == 2
    assert "no family 'nrm'" in capsys.readouterr().out


def test_a_wrong_result_exits_1(monkeypatch, capsys):
    def wrong(family, timer, quick):
        raise WrongResult("off")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cli, "machine", lambda commit: {})
    monkeypatch.setattr(cli, "run", wrong)
    assert cli.main(["norm"]) == 1
    assert "wrong result" in capsys.readouterr().err


def example_record():
    norm = Result("layer_norm", "16384 x 4096", "bf16", "TB/s", work=268_451_840)
    norm.seconds, norm.skipped = {OURS: 70e-6, "torch": 107e-6}, {"Liger": "not installed"}
    norm.yardstick, norm.yardstick_rate = "copy", 3.79
    host = Result("layer_norm", "tiny", "no gradient", "µs", seconds={OURS: 5e-6, "torch": 4e-6})
    host.yardstick, host.yardstick_rate, host.method = "limit", 7.0, "host time, queue empty"
    aten = dataclasses.replace(host, op="no_kernel_yet")
    names = ("gpu", "driver", "cuda", "torch", "triton", "date", "commit", "clocks")
    return {
        "machine": {name: name.upper() for name in names},
        "results": {"norm": [norm.to_json()], "host": [host.to_json(), aten.to_json()]},
    }


def test_results_hold_every_figure():
    section = results.render(records.of_run(json.loads(json.dumps(example_record()))))
    assert "| 16384 × 4096 | bf16 | **3.84 (70 µs)** | 2.51 (107 µs) | 3.79 |" in section
    assert "| layer_norm | no gradient | 5.0 µs | **4.0 µs** | 7 µs |" in section
    assert "| no_kernel_yet | no gradient | 5.0 µs | **4.0 µs** | – |" in section
    assert "Liger (not installed)" in section
    assert "L2 cache flushed" in section and "queue empty" in section
    assert "CUDA graph" not in section and "lasting load" not in section  # nothing shown was


def test_plot_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    report.draw(example_record(), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


@pytest.fixture
def on_the_cpu(monkeypatch):
    """The families' own cases, small enough for the CPU."""
    monkeypatch.setattr(harness, "DEVICE", "cpu")
    for module in families.each("benchmark.py"):
        module.make_small(monkeypatch)
    monkeypatch.setattr(harness, "matrix_product_rate", lambda timer: 700.0)
    monkeypatch.setattr(peers, "compiled", lambda function: function)


@pytest.mark.parametrize("family", families.modules("benchmark.py"))
def test_family_is_right_and_measurable(family, on_the_cpu):
    (module,) = families.modules("benchmark.py")[family]
    for benchmark in getattr(module, "BENCHMARKS", (family,)):
        for case in harness.load(benchmark).cases():
            result = harness.measure(case, Clock(1e-3))
            assert result.figure(OURS) > 0
            assert set(module.PEERS) <= set(result.seconds)
            assert set(result.seconds) | set(result.skipped) == set(case.contenders)


def test_host_times_every_function_with_and_without_gradients(on_the_cpu, monkeypatch):
    monkeypatch.setattr(bench_host, "WAKING_SECONDS", 0.001)
    results = list(bench_host.measure(Clock(4e-6)))
    ops = list(bench_host.calls(gradient=False))
    assert [(r.op, r.dtype) for r in results] == [
        (o, mode) for mode in bench_host.LIMITS for o in bench_host.calls(mode != "no gradient")
    ]
    for kernel in configs.KERNELS:
        assert {*kernel.ops} & {*ops}, f"{kernel.name}: its benchmark has no host_calls"
    assert all(r.figure(OURS) == pytest.approx(4.0) for r in results)
    assert all(r.yardstick for r in results if "torch" in r.seconds)
    # Torch has no op that computes the others.
    without = {m.__name__.split(".")[-2] for m in families.each("benchmark.py") if not m.PEERS}
    alone = {r.op for r in results if "torch" not in r.seconds}
    assert {kernel.name for kernel in configs.KERNELS if {*kernel.ops} & alone} <= without


def test_host_contenders_take_turns_and_a_slow_host_is_no_ones(monkeypatch):
    class Unsteady(Clock):
        def host_overhead(self, fn):
            fn()
            return 5e-6 if len(called) > 7 else 50e-6

    called = []
    monkeypatch.setattr(bench_host, "wake", lambda contenders: None)
    cases = {
        op: {name: functools.partial(called.append, op + name) for name in ("ours", "torch")}
        for op in "ab"
    }
    times = bench_host.in_turn(cases, Unsteady(0))
    assert called == ["aours", "atorch", "bours", "btorch"] * bench_host.TURNS
    assert times == {op: {"ours": 5e-6, "torch": 5e-6} for op in "ab"}


def test_hosts_are_woken(monkeypatch):
    called = []
    monkeypatch.setattr(bench_host, "WAKING_SECONDS", 0.01)
    bench_host.wake({name: functools.partial(called.append, name) for name in ("ours", "torch")})
    assert len(called) > 20
    assert called[:4] == ["ours", "torch"] * 2
