"""AdamW's kernels on a GPU: the list of test_adamw.py, and what only a GPU shows."""

import copy

import pytest
import torch
from torch import nn

import thunderkittens
from tests.families.adamw import cases
from tests.families.adamw.cases import BF16, FP16, FP32, Case
from thunderkittens import _C
from thunderkittens.optim import AdamW
from thunderkittens.testing import memory

pytestmark = pytest.mark.gpu

LARGE = (3_000_000, 768, 768 * 3072, 1, 50_257 * 17, 1_000_003)
FINAL = {"lr": 1e-3, "max_norm": 1.0, "skip_nonfinite": True}


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fallback would test torch, not the kernels."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")


def run(case: Case, inputs) -> list[torch.Tensor]:
    return cases.run_case(case, inputs)


@pytest.mark.parametrize("case", [*cases.all_cases(), Case(LARGE)], ids=str)
def test_against_float64(case):
    """Right, within its tensors, and the same bits with other neighbours; by our kernel."""
    inputs = cases.make(case, "cuda")
    before = _C.launch_counts()["adamw_update"]
    results = cases.run_between_guards(case, inputs)
    assert _C.launch_counts()["adamw_update"] > before
    cases.check_case(case, inputs, results)


def test_random_numbers():
    cases.check_random_numbers("cuda")


@pytest.mark.parametrize("dtypes", [(FP32,), (FP16,), (BF16,), (FP32, BF16)], ids=str)
@pytest.mark.parametrize(
    "sizes", [(1,), (5, 0, 3), cases.SIZES, LARGE, tuple(range(1, 500))], ids=len
)
def test_norm(sizes, dtypes):
    cases.check_norm(sizes, dtypes, "cuda")


@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_run_to_run(dtype):
    """The same bits every time, also while another stream keeps the GPU busy."""
    case = Case(LARGE, dtype, master=dtype == BF16, norm="clip")
    inputs = cases.make(case, "cuda")
    grads = inputs[: -1 : case.tensors]
    norm = torch.ops.thunderkittens.adamw_grad_norm
    want, want_norm = run(case, inputs), norm(grads)
    noise, other = torch.randn(2048, 2048, device="cuda"), torch.cuda.Stream()
    for _ in range(10):
        with torch.cuda.stream(other):
            noise @ noise
        assert torch.equal(norm(grads), want_norm)
        for got, first in zip(run(case, inputs), want, strict=True):
            assert memory.bits_equal(got, first)
    torch.cuda.synchronize()


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)).cuda()


def backward(model: nn.Module, x: torch.Tensor) -> None:
    for p in model.parameters():
        p.grad = None
    (100 * model(x).square().mean()).backward()


def test_the_numbers_of_torch():
    """Twenty steps beside torch's fused AdamW behind clip_grad_norm_."""
    ours, theirs = make_model(), make_model()
    optimizers = (
        AdamW(ours.parameters(), lr=1e-3, max_norm=1.0),
        torch.optim.AdamW(theirs.parameters(), lr=1e-3, fused=True),
    )
    for step in range(20):
        x = torch.randn(32, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            backward(model, x)
            if model is theirs:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_step_in_a_graph():
    """Backward and step replayed give the bits of eager, with another rate each time."""
    x = torch.randn(32, 64, device="cuda")
    rate = torch.tensor(1e-3, device="cuda")
    model = make_model()
    optimizer = AdamW(model.parameters(), **{**FINAL, "lr": rate})
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        backward(model, x)
        optimizer.step()
    torch.cuda.synchronize()
    twin = copy.deepcopy(model)
    twins = AdamW(twin.parameters(), **{**FINAL, "lr": torch.tensor(1e-3, device="cuda")})
    twins.load_state_dict(optimizer.state_dict())
    twins.param_groups[0]["lr"] = torch.tensor(1e-3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    for p in model.parameters():
        p.grad = None
    with torch.cuda.graph(graph):
        (100 * model(x).square().mean()).backward()
        optimizer.step()
    for step in range(5):
        x.copy_(torch.randn(32, 64, device="cuda"))
        if step == 3:
            x[0, 0] = torch.inf
        rate.fill_(1e-3 * (step + 1))
        twins.param_groups[0]["lr"].fill_(1e-3 * (step + 1))
        for p in model.parameters():
            p.grad.zero_()
        graph.replay()
        backward(twin, x)
        twins.step()
    assert int(optimizer.skipped_steps) == 1
    assert float(optimizer.state[model[0].weight]["step"]) == 5
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert memory.bits_equal(p, q)


def test_no_hidden_synchronisation():
    model = make_model()
    optimizer = AdamW(model.parameters(), **FINAL)
    backward(model, torch.randn(32, 64, device="cuda"))
    optimizer.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_one_launch_for_a_model():
    """Of 148 tensors, as GPT-2 has: one for the norm, one for the update."""
    params = [nn.Parameter(torch.randn(5 + i, device="cuda")) for i in range(148)]
    optimizer = AdamW(params, **FINAL)
    for p in params:
        p.grad = torch.randn_like(p)
    before = _C.launch_counts()
    optimizer.step()
    after = _C.launch_counts()
    assert {n: after[n] - before[n] for n in ("adamw_norm", "adamw_update")} == {
        "adamw_norm": 1,
        "adamw_update": 1,
    }


def test_more_than_2_to_the_31_elements():
    """The last elements past 2³¹ are those of a small parameter."""
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GiB of GPU memory")
    count, tail = 2**31 + 4099, 4099
    big = [torch.full((count,), 0.5, dtype=BF16, device="cuda") for _ in range(4)]
    small = [torch.rand(tail, device="cuda").to(BF16) for _ in range(4)]
    for whole, end in zip(big, small, strict=True):
        whole[-tail:] = end
    thunderkittens.adamw(*big, step=3)
    thunderkittens.adamw(*small, step=3)
    for whole, end in zip(big, small, strict=True):
        assert memory.bits_equal(whole[-tail:], end)
        assert bool((whole[:-tail] == whole[0]).all())
