"""Which mistakes are made of a source, and where."""

import pytest

from build_tools.settings import ROOT
from tests.mutation import job, listed, targets
from tests.mutation.operators import mutants
from tests.mutation.source import Source, closing, split

CODE = """\
// wait(a, 1) in a comment
#include "wait(a, 2).h"
template <int N = 3>
__global__ void __launch_bounds__(128, 1) kernel() {
  static_assert(N == 5, "wait(a, 6)");
  uint32_t phase = 0;
  shared.ring.wait_full(at);
  wait(shared.full[at.stage], phase);
  phase ^= 1;
  if (leads()) tma::load_async(s.q[w], p.q, s.full, {batch, .r = row + 1});
  expect_bytes(s.full, Config::bytes);
  warpgroup::mma_async_wait<1>();
  arch::named_barrier_sync(id, 4 * kWarp);
  init_semaphore(s.full, kArrivals);
  tril(s, s, first, kHidden);
  if (is_read) ring.release_after_loads(at);
}
"""

MUTANTS = job.mutants()


def changes(operator: str, code: str = CODE) -> list[str]:
    found = mutants(Source("kernel.cuh", code))
    return [f"{m.line} {m.change}" for m in found if m.operator == operator]


EXPECTED = {
    "delete": [
        "7 delete: shared.ring.wait_full(at) → nothing",
        "8 delete: wait(shared.full[at.stage], phase) → nothing",
        "9 delete: phase ^= 1 → nothing",
        "10 delete: tma::load_async(s.q[w], p.q, s.full, {batch, .r = row + 1}) → nothing",
        "11 delete: expect_bytes(s.full, Config::bytes) → nothing",
        "12 delete: warpgroup::mma_async_wait<1>() → nothing",
        "13 delete: arch::named_barrier_sync(id, 4 * kWarp) → nothing",
        "14 delete: init_semaphore(s.full, kArrivals) → nothing",
        "16 delete: ring.release_after_loads(at) → nothing",
    ],
    "condition": [
        "10 condition: leads() → false",
        "10 condition: leads() → true",
        "16 condition: is_read → false",
        "16 condition: is_read → true",
    ],
    "proxy": [
        "16 proxy: ring.release_after_loads(at) → "
        "{ arch::sync_warp(); if (arch::lane_id() == 0) ring.release_after_mma(at); }"
    ],
    "weaken": [
        "12 weaken: 1 → 2",
        "13 weaken: arch::named_barrier_sync(id, 4 * kWarp) → arch::sync_warp()",
    ],
    "phase": ["6 phase: 0 → 1", "8 phase: phase → phase ^ 1"],
    "stage": ["8 stage: at.stage → (at.stage + 1) % Config::stages"],
    "arrivals": [
        "14 arrivals: kArrivals → (kArrivals) + 1",
        "14 arrivals: kArrivals → (kArrivals) - 1",
    ],
    "bytes": [
        "11 bytes: Config::bytes → (Config::bytes) + 16",
        "11 bytes: Config::bytes → (Config::bytes) - 16",
    ],
    "barrier": ["13 barrier: id → (id) + 1", "13 barrier: id → (id) - 1"],
    "threads": [
        "13 threads: 4 * kWarp → (4 * kWarp) + 32",
        "13 threads: 4 * kWarp → (4 * kWarp) - 32",
    ],
    "bound": ["15 bound: first → (first) + 1", "15 bound: first → (first) - 1"],
    "coordinate": [
        "10 coordinate: batch → (batch) + 1",
        "10 coordinate: row + 1 → (row + 1) + 1",
    ],
    "subscript": ["10 subscript: w → (w) + 1"],
    "constant": [
        "6 constant: 0 → -1",
        "9 constant: 1 → 0",
        "9 constant: 1 → 2",
        "10 constant: 1 → 0",
        "10 constant: 1 → 2",
        "13 constant: 4 → 3",
        "13 constant: 4 → 5",
        "13 constant: 4 → 8",
    ],
    "comparison": [],
}


@pytest.mark.parametrize("operator", EXPECTED)
def test_operator(operator):
    assert changes(operator) == EXPECTED[operator]


def test_no_mistake_is_unexpected():
    assert {mutant.operator for mutant in mutants(Source("kernel.cuh", CODE))} <= set(EXPECTED)


def test_comparisons_but_not_templates_or_shifts():
    code = "if (a < b && c >= d) x = y << 1, load<float>(p->q);\n"
    assert changes("comparison", code) == ["1 comparison: < → <=", "1 comparison: >= → >"]


def test_mutant_changes_its_place_alone():
    source = Source("kernel.cuh", CODE)
    for mutant in mutants(source):
        changed = mutant.applied(CODE)
        assert changed[: mutant.begin] == CODE[: mutant.begin]
        assert changed.endswith(CODE[mutant.end :])
        assert changed != CODE
        assert mutant.plain_line == CODE.splitlines()[mutant.line - 1].strip()
        assert f"«{mutant.before}»" in mutant.context


def test_brackets():
    code = "f(a<b, c>(1), {2, 3}, [x, y])"
    assert closing(code, 1) == len(code) - 1
    assert closing(code, 3) == 8
    parts = [code[slice(*part)] for part in split(code, 2, len(code) - 1)]
    assert parts == ["a<b, c>(1)", "{2, 3}", "[x, y]"]
    with pytest.raises(ValueError, match="nothing closes"):
        closing("(()", 0)


def test_every_kernel_is_mutated():
    sources = (ROOT / "csrc/kernels").rglob("*.cuh")
    names = {path.relative_to(ROOT / "csrc").as_posix() for path in sources}
    assert names == {*targets.TARGETS, *targets.HOST_SIDE}


@pytest.mark.parametrize("entry", listed.LISTED, ids=lambda e: f"{e.line} {e.change}")
def test_entry_of_the_list_is_of_use(entry):
    assert any(entry.covers(mutant) for mutant in MUTANTS), "the kernel has changed"
    assert len(entry.reason) > 10


def test_sample_is_the_same_until_a_kernel_changes(monkeypatch):
    first = job.sample(MUTANTS, 20)
    assert first == job.sample(list(reversed(MUTANTS)), 20)
    assert len(set(first)) == 20
    assert not any(map(listed.find, first))
    text = targets.text
    monkeypatch.setattr(targets, "text", lambda file: f"{text(file)}\n")
    assert first != job.sample(MUTANTS, 20)
