"""Mistakes of synchronisation, planted in the attention kernel: the simulator must find each one.

Each case changes one place of attention_forward.cuh, compiles attention_case.cu with it, and runs
that under several policies. At least one of them must end in a report that names the cause, or in
wrong numbers where the mistake leaves nothing else to see. Race mode must find its own under each.
"""

import dataclasses
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from build_tools import settings, simulator
from build_tools.settings import ROOT, BuildError

PROGRAM = ROOT / "tests/kernels/attention_case.cu"
KERNEL = Path("kernels/attention/attention_forward.cuh")
POLICIES = ("eager", "lazy", "random:1", "random:2", "random:3", "random:4")
WRONG_NUMBERS = r"worst is \S+, not within"


@dataclass(frozen=True)
class Mistake:
    """What stands in the kernel, what stands there instead, and what the simulator says of it."""

    name: str
    right: str
    wrong: str
    found_as: str


MISTAKES = (
    Mistake(
        "keys_overwrite_a_slot_in_use",
        "s.k_ring.wait_empty(at);",
        "",
        r"arriv|bytes|phase",
    ),
    Mistake(
        "queries_overwrite_those_in_use",
        "wait(s.q_empty, q_phase);",
        "",
        r"arriv|phase|" + WRONG_NUMBERS,
    ),
    Mistake(
        "values_are_not_waited_for",
        "shared.v_ring.wait_full(v_at);\n    issue_output();\n    turn::pass(w);",
        "issue_output();\n    turn::pass(w);",
        r"parity stands for another phase",
    ),
    Mistake(
        "phase_of_the_queries_is_wrong",
        "uint32_t q_phase = 0;",
        "uint32_t q_phase = 1;",
        WRONG_NUMBERS + r"|phase|DEADLOCK",
    ),
    Mistake(
        "too_few_bytes_are_expected",
        "s.v_ring.expect(at, kBytes);",
        "s.v_ring.expect(at, kBytes - 128);",
        r"bytes",
    ),
    Mistake(
        "too_many_bytes_are_expected",
        "s.v_ring.expect(at, kBytes);",
        "s.v_ring.expect(at, kBytes + 128);",
        r"DEADLOCK[^$]*128 bytes",
    ),
    Mistake(
        "no_fence_before_the_first_product",
        "warpgroup::mma_fence();\n    warpgroup::mm_ABt",
        "warpgroup::mm_ABt",
        r"wgmma_fence",
    ),
    Mistake(
        "scores_are_read_while_in_flight",
        "warpgroup::mma_async_wait<1>();",
        "warpgroup::mma_async_wait<2>();",
        r"accumulator \d+ while the product [^\n]* was under way",
    ),
    Mistake(
        "output_is_scaled_while_in_flight",
        "warpgroup::mma_async_wait<0>();\n    release_v();\n    copy(weights, s);",
        "copy(weights, s);\n    release_v();",
        r"accumulator \d+ while the product [^\n]* was under way",
    ),
    Mistake(
        "every_thread_releases_the_slot",
        "if (signals()) shared.k_ring.release(k_at);",
        "shared.k_ring.release(k_at);",
        r"arriv",
    ),
    Mistake(
        "one_consumer_never_releases",
        "if (signals()) shared.v_ring.release(v_at);",
        "if (signals() && w != 1) shared.v_ring.release(v_at);",
        r"DEADLOCK[^$]*1 of 3 arrivals",
    ),
    Mistake(
        "the_turn_is_not_passed_on",
        "turn::pass(w);",
        "",
        r"DEADLOCK[^$]*barrier",
    ),
    Mistake(
        "the_tile_is_stored_before_all_have_written",
        "    warpgroup::sync(kBarrier + w);\n    if (signals()) {\n",
        "    if (signals()) {\n",
        WRONG_NUMBERS,
    ),
    Mistake(
        "a_block_ends_before_its_tile_is_read",
        "    if (signals()) tma::store_async_read_wait<0>();\n  }\n\n private:",
        "  }\n\n private:",
        r"exit|ends",
    ),
    Mistake(
        "semaphores_are_used_before_they_are_there",
        "arch::sync_block();",
        "",
        r"init",
    ),
)

LOADED = r"RACE at [^\n]*wgmma by [^\n]* reads [^\n]*tma_load by [^\n]*\n  missing: [^\n]*"
STORED = r"RACE at [^\n]*tma_store by [^\n]* reads [^\n]*store_matrix by "

# What only race mode sees under every policy; without it most give the right numbers under all.
RACES = (
    Mistake(
        "tile_is_stored_unfenced",
        "warpgroup::store(shared.o[w], o);",
        "warpgroup::store_unfenced(shared.o[w], o);",
        r"PROXY FENCE at attention_forward.cuh:\d+ [^\n]*tma_store by [^\n]* store_matrix by "
        r"threads 128-511 writes[^\n]*no proxy fence in between\n  missing: fence_async_proxy",
    ),
    Mistake(
        "one_warp_alone_fences_the_tile",
        "warpgroup::store(shared.o[w], o);",
        "warpgroup::store_unfenced(shared.o[w], o);\n"
        "    if (arch::warp_id() % 4 == 0) arch::fence_async_proxy();",
        r"PROXY FENCE at [^\n]* store_matrix by threads 160-255, 288-383, 416-511 writes",
    ),
    Mistake(
        "values_are_released_before_their_product_is_done",
        "warpgroup::mma_async_wait<0>();\n    release_v();\n    copy(weights, s);",
        "release_v();\n    warpgroup::mma_async_wait<0>();\n    copy(weights, s);",
        LOADED + "wgmma_wait",
    ),
    Mistake(
        "queries_are_released_before_their_last_product",
        "#pragma unroll 1\n    for (; j >= 0; --j) step<false>(first_row, j);\n"
        "    if (signals()) arrive(shared.q_empty);",
        "if (signals()) arrive(shared.q_empty);\n#pragma unroll 1\n"
        "    for (; j >= 0; --j) step<false>(first_row, j);",
        LOADED + "wgmma_wait",
    ),
    Mistake(
        "queries_are_not_waited_for",
        "wait(shared.q_full, q_phase);",
        "",
        LOADED + "whoever reads",
    ),
    Mistake(
        "values_are_waited_for_at_the_wrong_stage",
        "shared.v_ring.wait_full(v_at);\n    issue_output();\n    turn::pass(w);",
        "shared.v_ring.wait_full(k_at);\n    issue_output();\n    turn::pass(w);",
        LOADED + "whoever reads",
    ),
    Mistake(
        "the_tile_is_stored_before_all_have_written_it",
        "    warpgroup::sync(kBarrier + w);\n    if (signals()) {\n",
        "    if (signals()) {\n",
        STORED + r"[^\n]*\n  missing: a barrier between the last write and the copy",
    ),
    Mistake(
        "warps_alone_meet_before_the_tile_is_stored",
        "    warpgroup::sync(kBarrier + w);\n    if (signals()) {\n",
        "    arch::sync_warp();\n    if (signals()) {\n",
        STORED + r"threads 160-255, 288-383, 416-511 writes",
    ),
    Mistake(
        "the_tile_is_written_while_it_is_stored",
        "if (signals()) tma::store_async_read_wait<0>();  // of the tile before",
        "",
        STORED + r"[^\n]*\n  missing: [^\n]*bulk_wait_read",
    ),
    Mistake(
        "the_tile_is_written_before_its_store_is_waited_for",
        "warpgroup::sync(kBarrier + w);\n    warpgroup::store",
        "warpgroup::store",
        STORED + r"threads 129-255, 257-383, 385-511 writes",
    ),
    Mistake(
        "semaphores_are_used_without_a_barrier",
        "arch::sync_block();",
        "",
        r"RACE at [^\n]*mbarrier_init by thread 0 writes [^\n]*\n  missing: sync_block"
        r"|no mbarrier was initialised",
    ),
    Mistake(
        "scores_are_read_before_they_are_there",
        "warpgroup::mma_async_wait<1>();",
        "warpgroup::mma_async_wait<2>();",
        r"RACE at [^\n]* read accumulator 0, which the product asked for at attention_forward.cuh",
    ),
)


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    """The programs, by the names of their mistakes; "" is the one without."""
    try:
        job = simulator.kernel_job(simulator.headers(), PROGRAM, race=True)
    except BuildError as reason:
        pytest.skip(str(reason))
    source = (ROOT / "csrc" / KERNEL).read_text()
    jobs = [job]
    for mistake in (*MISTAKES, *RACES):
        assert source.count(mistake.right) == 1, f"{mistake.name}: the kernel has changed"
        changed = settings.build_dir() / "mistakes" / mistake.name / KERNEL
        changed.parent.mkdir(parents=True, exist_ok=True)
        changed.write_text(source.replace(mistake.right, mistake.wrong))
        folder = str(changed.parents[2])
        command = (job.command[0], "-I", folder, *job.command[1:])
        name = f"{job.name}.{mistake.name}"
        jobs.append(dataclasses.replace(job, name=name, command=command))
    names = ["", *(mistake.name for mistake in (*MISTAKES, *RACES))]
    return dict(zip(names, simulator.build_programs(jobs), strict=True))


def run(program: Path, policy: str) -> str:
    """Returns what a program prints when it fails, or nothing."""
    done = subprocess.run(
        [program],
        env=os.environ | {"KITTENS_SIM": f"{policy},spin=1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("policy", [*POLICIES, *(f"{policy},race" for policy in POLICIES)])
def test_nothing_is_found_where_nothing_is(programs: dict[str, Path], policy: str):
    assert run(programs[""], policy) == ""


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_found(programs: dict[str, Path], mistake: Mistake):
    said = {policy: run(programs[mistake.name], policy) for policy in POLICIES}
    reports = [text for text in said.values() if re.search(mistake.found_as, text)]
    assert reports, f"{mistake.name} is not found as /{mistake.found_as}/: {said}"


@pytest.mark.parametrize("mistake", RACES, ids=lambda mistake: mistake.name)
def test_race_is_found_under_every_policy(programs: dict[str, Path], mistake: Mistake):
    for policy in POLICIES:
        said = run(programs[mistake.name], f"{policy},race")
        assert re.search(mistake.found_as, said), f"{mistake.name} under {policy}: {said}"
