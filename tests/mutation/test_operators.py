"""Which mistakes are made of a source, where, and what they are called."""

import re

import pytest

from build_tools.settings import ROOT
from tests.mutation import job, listed, targets
from tests.mutation.mutant import Mutant
from tests.mutation.operators import mutants
from tests.mutation.source import Source, closing, split

NAME = "kernels/example/kernel.cuh"
CODE = """\
// wait(a, 1) in a comment
#include "wait(a, 2).h"
template <int N = 3>
struct consumer {
  alignas(16) float sums[4], other[N];
  cursor<4> at;
  ring<4> stages;
  bool later = false;

  KITTENS_DEVICE void give_back() {
    if (is_read) stages.release_after_loads(at);
    at.advance();
  }
  KITTENS_DEVICE void operator()(float x) { arch::named_barrier_sync(id, 4 * kWarp); }
};

__global__ void __launch_bounds__(128, 1) kernel() {
  static_assert(N == 5, "wait(a, 6)");
  uint32_t parity = 0;
  init_semaphore(s.full, kArrivals);
  stages.wait_full(at);
  wait(full[at.stage], parity);
  parity ^= 1;
  if (leads()) tma::load_async(s.q[w], p.q, s.full, {batch, .r = row + 1});
  expect_bytes(s.full, Config::bytes);
  warpgroup::mma_async_wait<1>();
  warpgroup::store(tile, result);
  tril(s, s, first, kHidden);
  consumer<4> group;
  group(sums[i]);
  group.give_back();
  const auto send = [&](int n) { arrive(s.empty, n); };
  send(2);
  for (int i = 0; i < count && x == 5; i += 3) y = y << 1;
}
"""

MUTANTS = job.mutants()


def found(code: str = CODE) -> list[Mutant]:
    return mutants(Source(NAME, code))


# Of each its line and function, what it is in that, and its change.
EXPECTED = """\
5: consumer: length less: 4 → 3
6: consumer: term 1/2 double: 4 → 8
6: consumer: term 1/2 less: 4 → 3
6: consumer: term 1/2 more: 4 → 5
7: consumer: term 2/2 double: 4 → 8
7: consumer: term 2/2 less: 4 → 3
7: consumer: term 2/2 more: 4 → 5
11: consumer::give_back: guard always: is_read → true
11: consumer::give_back: guard never: is_read → false
11: consumer::give_back: release deleted: stages.release_after_loads(at) → nothing
11: consumer::give_back: release unfenced: stages.release_after_loads(at) → \
{ arch::sync_warp(); if (arch::lane_id() == 0) stages.release_after_mma(at); }
12: consumer::give_back: phase deleted: at.advance() → nothing
14: consumer::operator(): barrier deleted: arch::named_barrier_sync(id, 4 * kWarp) → nothing
14: consumer::operator(): barrier number less: id → (id) - 1
14: consumer::operator(): barrier number more: id → (id) + 1
14: consumer::operator(): barrier weaker: arch::named_barrier_sync(id, 4 * kWarp) → \
arch::sync_warp()
14: consumer::operator(): term double: 4 → 8
14: consumer::operator(): term less: 4 → 3
14: consumer::operator(): term more: 4 → 5
14: consumer::operator(): threads less: 4 * kWarp → (4 * kWarp) - 32
14: consumer::operator(): threads more: 4 * kWarp → (4 * kWarp) + 32
19: kernel: phase 1/2 flipped: 0 → 1
19: kernel: start 1/2 less: 0 → -1
20: kernel: arrivals less: kArrivals → (kArrivals) - 1
20: kernel: arrivals more: kArrivals → (kArrivals) + 1
20: kernel: init deleted: init_semaphore(s.full, kArrivals) → nothing
21: kernel: wait 1/4 deleted: stages.wait_full(at) → nothing
22: kernel: parity flipped: parity → parity ^ 1
22: kernel: stage next: at.stage → (at.stage + 1) % (sizeof(full) / sizeof(full[0]))
22: kernel: wait 2/4 deleted: wait(full[at.stage], parity) → nothing
23: kernel: phase 2/2 deleted: parity ^= 1 → nothing
23: kernel: term 1/4 less: 1 → 0
23: kernel: term 1/4 more: 1 → 2
24: kernel: coordinate 1/2 next: batch → (batch) + 1
24: kernel: coordinate 2/2 next: row + 1 → (row + 1) + 1
24: kernel: copy deleted: tma::load_async(s.q[w], p.q, s.full, {batch, .r = row + 1}) → nothing
24: kernel: guard always: leads() → true
24: kernel: guard never: leads() → false
24: kernel: subscript 1/2 next: w → (w) + 1
24: kernel: term 2/4 less: 1 → 0
24: kernel: term 2/4 more: 1 → 2
25: kernel: bytes less: Config::bytes → (Config::bytes) - 16
25: kernel: bytes more: Config::bytes → (Config::bytes) + 16
25: kernel: expect deleted: expect_bytes(s.full, Config::bytes) → nothing
26: kernel: wait 3/4 deleted: warpgroup::mma_async_wait<1>() → nothing
26: kernel: wait 4/4 weaker: 1 → 2
27: kernel: store unfenced: warpgroup::store → warpgroup::store_unfenced
28: kernel: edge less: first → (first) - 1
28: kernel: edge more: first → (first) + 1
29: kernel: term 3/4 double: 4 → 8
29: kernel: term 3/4 less: 4 → 3
29: kernel: term 3/4 more: 4 → 5
30: kernel: barrier deleted: group(sums[i]) → nothing
30: kernel: subscript 2/2 next: i → (i) + 1
31: kernel: step deleted: group.give_back() → nothing
32: kernel: arrive 1/2 deleted: arrive(s.empty, n) → nothing
33: kernel: argument less: 2 → 1
33: kernel: argument more: 2 → 3
33: kernel: arrive 2/2 deleted: send(2) → nothing
34: kernel: bound shifted: < → <=
34: kernel: equality negated: == → !=
34: kernel: limit double: 5 → 10
34: kernel: limit less: 5 → 4
34: kernel: limit more: 5 → 6
34: kernel: start 2/2 less: 0 → -1
34: kernel: start 2/2 more: 0 → 1
34: kernel: stride less: 3 → 2
34: kernel: stride more: 3 → 4
34: kernel: term 4/4 less: 1 → 0
34: kernel: term 4/4 more: 1 → 2
"""


def described(mutant: Mutant) -> str:
    return str(mutant).removeprefix(f"{NAME}:")


def test_what_is_made_of_a_source():
    ordered = sorted(found(), key=lambda mutant: (mutant.line, mutant.function, mutant.name))
    assert "\n".join(map(described, ordered)) + "\n" == EXPECTED


def test_a_place_is_another_of_its_kind_not_another_line():
    """What an entry of the list names stays the same where lines move and names change."""
    names = [(mutant.function, mutant.name) for mutant in found()]
    moved = f"// A comment.\n\n{CODE}".replace("  expect_bytes", "\n  expect_bytes")
    renamed = moved
    for before, after in (
        ("parity", "round"),
        ("give_back", "to_the_producer"),
        ("stages", "ring_of_tiles"),
        ("at", "place"),
        ("group", "all_warps"),
        ("send", "tell"),
    ):
        renamed = re.sub(rf"\b{before}\b", after, renamed)
    expected = [(f.replace("give_back", "to_the_producer"), name) for f, name in names]
    assert [(mutant.function, mutant.name) for mutant in found(moved)] == names
    assert [(mutant.function, mutant.name) for mutant in found(renamed)] == expected


@pytest.mark.parametrize("file", targets.TARGETS)
def test_renamed_variables_of_kernels_change_no_name(file):
    text = targets.text(file)
    before = [(m.function, m.name) for m in MUTANTS if m.file == file]
    declared = r"\b(?:int|bool|float|auto|uint32_t|int64_t|unsigned)&? (\w+) = (\[)?"
    variables = dict(re.findall(declared, text))
    for variable, lambda_ in variables.items():
        elsewhere = r"" if lambda_ else r"(?!\()"  # a function of the same name
        pattern = rf"(?<![.\w])(?<!->)(?<!::){variable}\b{elsewhere}"
        text = re.sub(pattern, f"renamed_{variable}", text)
    assert variables or not before
    left_out = [f"renamed_{n}" if n in variables else n for n in targets.LEFT_OUT.get(file, ())]
    renamed = mutants(Source(file, text, tuple(left_out)))
    assert [(mutant.function, mutant.name) for mutant in renamed] == before


def test_places_of_a_kind_are_counted():
    """So that an entry of the list says it when there is one more."""
    more = CODE.replace(
        "  stages.wait_full(at);", "  stages.wait_full(at);\n  stages.wait_full(at);"
    )
    assert "wait 2/4 deleted" in {mutant.name for mutant in found()}
    assert not {"wait 2/4 deleted"} & {mutant.name for mutant in found(more)}


def test_helpers_have_the_roles_of_what_they_call():
    others = CODE.replace("stages.release_after_loads(at)", "tma::store_commit_group()")
    names = {(mutant.line, mutant.name) for mutant in found(others)}
    assert (31, "step deleted") in names  # commits, and moves on
    assert (12, "phase deleted") in names
    nothing = others.replace("at.advance();", "").replace("tma::store_commit_group()", "count()")
    assert not [mutant for mutant in found(nothing) if mutant.line == 31]


def test_names_are_of_one_mutant_each():
    names = [(mutant.file, mutant.function, mutant.name) for mutant in MUTANTS]
    assert len(set(names)) == len(names)


def test_comparisons_but_not_templates_or_shifts():
    code = "void f() { if (a < b && c >= d) x = y << 1, load<float>(p->q); }\n"
    bounds = [m.before for m in found(code) if m.operator == "bound"]
    assert bounds == ["<", ">="]


def test_mutant_changes_its_place_alone():
    for mutant in found():
        changed = mutant.applied(CODE)
        assert changed[: mutant.begin] == CODE[: mutant.begin]
        assert changed.endswith(CODE[mutant.end :])
        assert changed != CODE
        line = mutant.context.replace("«", "").replace("»", "")
        assert line == CODE.splitlines()[mutant.line - 1].strip()
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


@pytest.mark.parametrize("entry", listed.LISTED, ids=lambda e: f"{e.file} {e.function} {e.names}")
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
