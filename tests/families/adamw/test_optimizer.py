"""thunderkittens.optim.AdamW on the CPU: torch's optimizer, with clipping and the rest in it."""

import copy
import io
import itertools

import pytest
import torch
from torch import nn

from tests.families.adamw import cases
from thunderkittens.optim import AdamW
from thunderkittens.testing import memory

BF16 = torch.bfloat16


def make_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(7, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 3)).to(dtype)


def groups_of(model: nn.Module) -> list[dict]:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    return [{"params": matrices, "weight_decay": 0.2}, {"params": vectors, "betas": (0.8, 0.95)}]


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16, 7, generator=generator).to(next(model.parameters()).dtype)
    return 30 * model(x).square().mean()


def train(model: nn.Module, optimizer, steps: range, clip: float | None = None) -> list[float]:
    losses = []
    for step in steps:
        loss = loss_of(model, step)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def close(model: nn.Module, other: nn.Module) -> None:
    """A step's size is at most about the rate; each rounds some units in the last place of it."""
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=2e-5, atol=2e-6)


def same(model: nn.Module, other: nn.Module) -> bool:
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return all(memory.bits_equal(p, q) for p, q in pairs)


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("maximize", [False, True])
def test_the_numbers_of_torch(clip, maximize):
    """Twenty steps of a small model, beside torch.optim.AdamW behind clip_grad_norm_."""
    ours, theirs = make_model(), make_model()
    options = {"lr": 1e-3, "maximize": maximize}
    optimizer = AdamW(groups_of(ours), max_norm=clip, **options)
    got = train(ours, optimizer, range(20))
    want = train(theirs, torch.optim.AdamW(groups_of(theirs), **options), range(20), clip)
    assert got == pytest.approx(want, rel=1e-4)
    close(ours, theirs)
    assert (optimizer.grad_norm is None) == (clip is None)


def test_norm_before_clipping():
    model = make_model()
    optimizer = AdamW(model.parameters(), max_norm=1e-3)
    loss_of(model, 0).backward()
    want = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    before = [p.grad.clone() for p in model.parameters()]
    optimizer.step()
    torch.testing.assert_close(optimizer.grad_norm, want)
    assert all(map(torch.equal, before, (p.grad for p in model.parameters())))


@pytest.mark.parametrize("first_is_ours", [True, False])
def test_state_goes_to_torch_and_back(first_is_ours):
    """After ten steps of one, the other takes ten from what it has saved."""
    kinds = (AdamW, torch.optim.AdamW) if first_is_ours else (torch.optim.AdamW, AdamW)
    ours, theirs = make_model(), make_model()
    first = kinds[0](groups_of(ours), lr=1e-3)
    train(ours, first, range(10))
    second = kinds[1](groups_of(theirs), lr=5e-2)
    theirs.load_state_dict(ours.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.param_groups[0]["lr"] == 1e-3
    state = next(iter(second.state.values()))
    assert {"step", "exp_avg", "exp_avg_sq"} <= set(state)
    assert float(state["step"]) == 10
    train(ours, first, range(10, 20))
    train(theirs, second, range(10, 20))
    close(ours, theirs)


def test_resumes_to_the_bit():
    """Through a file, with everything on."""
    options = {"lr": 1e-3, "max_norm": 1.0, "skip_nonfinite": True, "master_weights": True}
    options |= {"moment_dtype": BF16, "stochastic_rounding": True, "seed": 3}
    whole, halves = make_model(BF16), make_model(BF16)
    train(whole, AdamW(groups_of(whole), **options), range(8))
    optimizer = AdamW(groups_of(halves), **options)
    train(halves, optimizer, range(4))
    file = io.BytesIO()
    torch.save([halves.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    again, saved = make_model(BF16), torch.load(file)
    again.load_state_dict(saved[0])
    optimizer = AdamW(groups_of(again), **options)
    optimizer.load_state_dict(saved[1])
    train(again, optimizer, range(4, 8))
    assert same(whole, again)


def test_loaded_state_is_no_ones_elses():
    model = make_model()
    optimizer = AdamW(model.parameters())
    train(model, optimizer, range(2))
    saved = optimizer.state_dict()
    before = copy.deepcopy(saved["state"][0]["exp_avg"])
    other = AdamW(make_model().parameters())
    other.load_state_dict(saved)
    for state in other.state.values():
        state["exp_avg"].fill_(7)
    assert torch.equal(saved["state"][0]["exp_avg"], before)


def test_copies_and_pickles():
    model = make_model()
    optimizer = AdamW(model.parameters(), max_norm=0.1)
    train(model, optimizer, range(2))
    twin, twins = copy.deepcopy((model, optimizer))
    train(model, optimizer, range(2, 4))
    train(twin, twins, range(2, 4))
    assert same(model, twin)


def test_master_weights():
    """Steps below what bfloat16 can hold add up, and the parameter is the master's rounding."""
    p = nn.Parameter(torch.ones(5, dtype=BF16))
    bare = nn.Parameter(torch.ones(5, dtype=BF16))
    for parameter, masters in ((p, True), (bare, False)):
        optimizer = AdamW([parameter], lr=1e-4, weight_decay=0, master_weights=masters)
        for _ in range(200):
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        state = optimizer.state[parameter]
        assert state["exp_avg"].dtype == torch.float32
        if masters:
            torch.testing.assert_close(
                state["master_param"], torch.full((5,), 0.98), atol=1e-5, rtol=0
            )
            assert torch.equal(parameter, state["master_param"].to(BF16))
    assert torch.equal(bare, torch.ones_like(bare))


def test_stochastic_rounding_needs_no_masters():
    p = nn.Parameter(torch.ones(4000, dtype=BF16))
    optimizer = AdamW([p], lr=1e-4, weight_decay=0, stochastic_rounding=True)
    for _ in range(50):
        p.grad = torch.ones_like(p)
        optimizer.step()
    # Sums of 50 draws with a chance of 0.0256 of a step of 2⁻⁸; of 4000 elements the mean.
    assert float(p.double().mean()) == pytest.approx(
        0.995, abs=5 * 2.0**-8 * (50 * 0.0256 / 4000) ** 0.5
    )


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_steps_are_skipped(bad):
    model = make_model()
    optimizer = AdamW(groups_of(model), skip_nonfinite=True)
    train(model, optimizer, range(2))
    kept, state = copy.deepcopy((model, optimizer.state_dict()))
    loss_of(model, 5).backward()
    next(model.parameters()).grad[0, 0] = bad
    optimizer.step()
    assert same(model, kept)
    assert int(optimizer.skipped_steps) == 1
    for now, before in zip(
        optimizer.state_dict()["state"].values(), state["state"].values(), strict=True
    ):
        assert all(torch.equal(now[name], before[name]) for name in before)


def test_without_skipping_a_nan_is_seen():
    p = nn.Parameter(torch.ones(3))
    optimizer = AdamW([p], max_norm=1.0)
    p.grad = torch.tensor([1.0, float("nan"), 1.0])
    optimizer.step()
    assert p.isnan().all()


def test_parameters_without_gradients():
    """They wait, and count no step."""
    p, q = (nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = AdamW([p, q], max_norm=1.0)
    optimizer.step()
    assert optimizer.grad_norm is None
    p.grad = torch.ones(3)
    optimizer.step()
    q.grad = torch.ones(3)
    optimizer.step()
    assert [float(optimizer.state[t]["step"]) for t in (p, q)] == [2, 1]


def test_closure():
    model = make_model()
    optimizer = AdamW(model.parameters())

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, 0)
        loss.backward()
        return loss

    want = float(loss_of(model, 0))
    assert float(optimizer.step(closure)) == want
    assert float(loss_of(model, 0)) < want


def test_schedulers_and_tensors_as_rates():
    """A scheduler changes a number, or the tensor in place."""
    models = [make_model() for _ in range(2)]
    for model, rate in zip(models, (0.01, torch.tensor(0.01)), strict=True):
        optimizer = AdamW(model.parameters(), lr=rate)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
        for step in range(5):
            train(model, optimizer, range(step, step + 1))
            scheduler.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-9)
    close(*models)


def test_mixed_dtypes():
    """Of float32, bfloat16 and float64 in one group, with one norm."""
    params = [nn.Parameter(torch.ones(4, dtype=t)) for t in (torch.float32, BF16, torch.float64)]
    optimizer = AdamW(params, lr=0.5, weight_decay=0, max_norm=1.0, master_weights=True)
    for p in params:
        p.grad = torch.full_like(p, 0.5)
    optimizer.step()
    assert float(optimizer.grad_norm) == pytest.approx(3**0.5)
    assert [p.dtype for p in params] == [torch.float32, BF16, torch.float64]
    for p in params:
        torch.testing.assert_close(p.double(), torch.full((4,), 0.5).double(), rtol=0, atol=1e-6)


def test_of_a_compiled_model():
    models = [make_model() for _ in range(2)]
    compiled = torch.compile(models[1], backend="eager")
    losses = [
        train(model, AdamW(model.parameters(), max_norm=1.0), range(3))
        for model in (models[0], compiled)
    ]
    assert losses[0] == losses[1]
    assert same(*models)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr must be at least 0, got -1.0"),
        ({"lr": torch.ones(2)}, r"lr must have one element, got shape \[2\]"),
        ({"betas": (0.9, 1.0)}, r"betas must be two numbers of at least 0 and below 1, got \(0.9"),
        ({"eps": -1e-8}, "eps must be at least 0, got -1e-08"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, got -1.0"),
        ({"max_norm": -1.0}, "max_norm must be at least 0, or None, got -1.0"),
        ({"moment_dtype": torch.float16}, "moment_dtype must be torch.float32 or torch.bfloat16"),
    ],
    ids=str,
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=f"^AdamW: {message}"):
        AdamW([torch.ones(3)], **options)


def test_refused_groups_and_states():
    optimizer = AdamW([nn.Parameter(torch.ones(3))], stochastic_rounding=True)
    with pytest.raises(ValueError, match="stochastic_rounding takes bfloat16 parameters"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3).half())]})
    assert len(optimizer.param_groups) == 1
    with pytest.raises(ValueError, match="parameters must be float32, float16"):
        AdamW([torch.ones(3, dtype=torch.complex64)])
    other = torch.optim.AdamW([nn.Parameter(torch.ones(3))], amsgrad=True)
    with pytest.raises(ValueError, match="the state must be of training without amsgrad"):
        optimizer.load_state_dict(other.state_dict())


def test_named_parameters():
    model = make_model()
    optimizer = AdamW(model.named_parameters())
    train(model, optimizer, range(2))
    assert optimizer.state_dict()["param_groups"][0]["param_names"][0] == "0.weight"


def test_a_seed_of_its_own_for_each_parameter():
    """Equal parameters of one optimizer are rounded apart, and alike in every run."""
    runs = []
    for _ in range(2):
        params = [nn.Parameter(torch.ones(64, dtype=BF16)) for _ in range(2)]
        optimizer = AdamW([{"params": [p]} for p in params], stochastic_rounding=True, lr=1e-3)
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()
        assert not torch.equal(*params)
        runs.append(params)
    assert all(itertools.starmap(torch.equal, zip(*runs, strict=True)))
    assert cases.words(4, 0, 1, 0).tolist() != cases.words(4, 0, 1, 2).tolist()
