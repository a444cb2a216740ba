"""AdamW's ops on the CPU: torch's arithmetic against float64, and what is refused."""

import pytest
import torch

import thunderkittens
from tests.families.adamw import cases
from tests.families.adamw.cases import BF16, FP32, FP64, Case
from thunderkittens.testing import memory


@pytest.mark.parametrize("case", cases.all_cases(), ids=str)
def test_against_float64(case):
    inputs = cases.make(case)
    cases.check_case(case, inputs, cases.run_between_guards(case, inputs))


def test_random_numbers():
    cases.check_random_numbers("cpu")


def test_stochastic_rounding_is_right_on_average():
    """Of 2¹⁵ draws between two neighbours: the mean within five of its standard deviations."""
    count = 1 << 15
    grad, m, v = (torch.zeros(count) for _ in range(3))
    param = torch.ones(count, dtype=BF16)
    m.fill_(0.9)
    # 1 − 0.3 · 2⁻⁸, and numbers of bfloat16 below 1 are 2⁻⁸ apart.
    options = {"lr": 0.3 * 2.0**-8, "weight_decay": 1.0, "stochastic_rounding": True}
    thunderkittens.adamw(grad.to(BF16), param, grad.clone(), v, step=1, seed=3, **options)
    low = (param == 1 - 2.0**-8).double().mean()
    assert set(param.tolist()) == {1.0, 1 - 2.0**-8}
    assert abs(float(low) - 0.3) < 5 * (0.3 * 0.7 / count) ** 0.5


def test_float64():
    p, m, v = (torch.randn(40, dtype=FP64) for _ in range(3))
    grad, v = torch.randn(40, dtype=FP64), v.square()
    want, names = p.clone(), ("exp_avg", "exp_avg_sq")
    optimizer = torch.optim.AdamW([want], lr=0.1, weight_decay=0.2, betas=(0.8, 0.9))
    state = dict(zip(names, (m.clone(), v.clone()), strict=True))
    optimizer.state[want] = {"step": torch.tensor(4.0), **state}
    want.grad = grad
    optimizer.step()
    options = {"lr": 0.1, "weight_decay": 0.2, "beta1": 0.8, "beta2": 0.9}
    thunderkittens.adamw(grad, p, m, v, step=5, **options)
    torch.testing.assert_close(p, want, rtol=1e-13, atol=1e-15)
    for name, got in zip(names, (m, v), strict=True):
        torch.testing.assert_close(got, state[name], rtol=1e-14, atol=0)


@pytest.mark.parametrize("sizes", [(1,), (5, 0, 3), (3000, 2)], ids=str)
def test_norm(sizes):
    cases.check_norm(sizes, (FP32, BF16), "cpu")
    assert torch.ops.thunderkittens.adamw_grad_norm([torch.ones(4, dtype=FP64)]).dtype == FP64
    assert float(torch.ops.thunderkittens.adamw_grad_norm([])) == 0


def tensors(count: int = 4, size: int = 6) -> list[torch.Tensor]:
    return [torch.ones(size) * i for i in range(1, count + 1)]


def test_what_shares_memory_is_refused():
    grad, p, m, v = tensors()
    for bad in ((p, p, m, v), (grad, p, p, v), (grad, p, m, m)):
        with pytest.raises(RuntimeError, match="^adamw: .* must not share memory with"):
            thunderkittens.adamw(*bad, step=1)
    with pytest.raises(RuntimeError, match="^adamw: param must not overlap with itself"):
        thunderkittens.adamw(grad, torch.ones(1).expand(6), m, v, step=1)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"step": 0}, ValueError, "step must be an integer >= 1, got 0"),
        ({"beta1": 1.0}, ValueError, "beta1 must be at least 0 and below 1, got 1"),
        ({"beta2": -0.1}, ValueError, "beta2 must be at least 0 and below 1, got -0.1"),
        ({"grad_norm": torch.ones(2)}, ValueError, "grad_norm must have one element"),
        ({"grad_norm": torch.ones((), dtype=BF16)}, TypeError, "grad_norm must have dtype float32"),
    ],
    ids=str,
)
def test_refused(change, error, message):
    with pytest.raises(error, match=f"^adamw: {message}"):
        thunderkittens.adamw(*tensors(), **{"step": 1, **change})


def test_norm_of_its_own():
    grad, p, m, v = tensors()
    thunderkittens.adamw(grad, p, m, v, step=1, max_norm=0.5)
    want = tensors()[1:]
    thunderkittens.adamw(grad, *want, grad.norm(), step=1, max_norm=0.5)
    for got, same in zip((p, m, v), want, strict=True):
        torch.testing.assert_close(got, same, rtol=1e-6, atol=0)


def test_a_gradient_of_it_is_refused():
    grad, p, m, v = tensors()
    with pytest.raises(NotImplementedError, match="adamw: grad must not require a gradient"):
        thunderkittens.adamw(grad.requires_grad_(), p, m, v, step=1)
    p = torch.nn.Parameter(p)
    with torch.no_grad():
        thunderkittens.adamw(grad, p, m, v, step=1)
    assert p._version == 1


def foreach(**change: object) -> None:
    grad, p, m, v = tensors()
    lists = {"grads": [grad], "params": [p], "exp_avgs": [m], "exp_avg_sqs": [v]}
    lists |= {"master_params": [], "steps": [torch.zeros(())]}
    singles = {"lr_tensor": None, "grad_norm": None, "skipped": None, "numbers": [0]}
    given = {**lists, **singles, **cases.options_of(Case()), **change}
    torch.ops.thunderkittens.adamw_foreach(**given)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"grads": []}, ValueError, r"grads must have 1 tensors \(as params\), got 0"),
        ({"exp_avgs": [torch.ones(5)]}, ValueError, r"exp_avgs\[0\] must have shape \[6\]"),
        ({"grads": [torch.ones(6).half()]}, TypeError, r"grads\[0\] must have dtype that of the"),
        ({"exp_avgs": [torch.ones(6).half()]}, TypeError, r"exp_avgs\[0\] must have dtype float32"),
        ({"master_params": [torch.ones(6).half()]}, TypeError, "must have dtype float32, got Half"),
        ({"steps": [torch.zeros((), dtype=FP64)]}, TypeError, r"steps\[0\] must have dtype"),
        ({"steps": [torch.zeros(2)]}, ValueError, "each of steps must have one element"),
        (
            {"exp_avg_sqs": [torch.ones(6, device="meta")]},
            ValueError,
            r"exp_avg_sqs\[0\] must be on",
        ),
        ({"grad_norm": torch.ones(3)}, ValueError, "grad_norm must have one element"),
        ({"skipped": torch.zeros(())}, TypeError, "skipped must have dtype int32"),
        ({"numbers": []}, ValueError, "numbers must have 1 integers, got 0"),
        ({"beta2": 1.0}, ValueError, "beta2 must be at least 0 and below 1"),
        (
            {"params": [torch.ones(6).to_sparse()]},
            NotImplementedError,
            r"params\[0\] must be a dense",
        ),
    ],
    ids=str,
)
def test_lists_that_are_refused(change, error, message):
    foreach()
    with pytest.raises(error, match=f"^adamw_foreach: .*{message}"):
        foreach(**change)


def test_lists_count_versions():
    p = torch.ones(6)
    foreach(params=[p])
    assert p._version == 1


def test_opcheck():
    """Schema, fake tensors and the rest of what torch asks of an op."""
    case = Case((9, 4), norm="clip")
    *given, norm = cases.make(case)
    lists = [list(given[i::4]) for i in range(4)]
    steps = [torch.zeros(()) for _ in case.sizes]
    skipped = torch.zeros((), dtype=torch.int32)
    args = (*lists, [], steps, None, norm, skipped, [0, 1])
    torch.library.opcheck(
        torch.ops.thunderkittens.adamw_foreach.default, args, cases.options_of(case)
    )
    torch.library.opcheck(torch.ops.thunderkittens.adamw_grad_norm.default, (lists[0],))
    torch.library.opcheck(
        torch.ops.thunderkittens.adamw.default, tuple(given[:4]), {"step": 1, "lr": 0.1}
    )


def test_vmap():
    """Parameters of an ensemble, one after the other."""
    grads, params, m, v = (torch.rand(3, 5) for _ in range(4))
    want = [t.clone() for t in (params, m, v)]
    for i in range(3):
        thunderkittens.adamw(grads[i], want[0][i], want[1][i], want[2][i], step=2)
    torch.vmap(lambda *t: (thunderkittens.adamw(*t, step=2), t[1])[1])(grads, params, m, v)
    assert all(map(memory.bits_equal, (params, m, v), want))
