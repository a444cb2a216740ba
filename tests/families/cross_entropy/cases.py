"""The problems on which cross_entropy is judged, on every backend: one list for all tests."""

import dataclasses
import itertools
import math

import pytest
import torch

import thunderkittens
from tests.tools import kernel_kinds
from tests.tools.tensors import BF16, FP16, FP32, FP64, SHORT, lay_out
from thunderkittens.testing import assert_close, tolerance

# Around a lane's vectors, a warp's columns and a row's warps; and vocabularies of models.
WIDTHS = (1, 2, 7, 8, 9, 13, 16, 33, 255, 256, 257, 1000, 1023, 1024, 1025, 2049)
STREAMED = (32769, 49153)  # rows that no longer fit in registers: aligned in none but the first
LAYOUTS = ("contiguous", "sliced", "offset", "stepped", "permuted", "expanded")
# And "far", of rows that have no bound here (cross_entropy_far_cases.py).
REGIMES = ("normal", "peaked", "large", "masked", "half masked", "equal")
OPTIONS = (
    {"reduction": "sum"},
    {"reduction": "none"},
    {"label_smoothing": 0.1},
    {"label_smoothing": 1.0, "reduction": "sum"},
    {"z_loss": 0.01},
    {"label_smoothing": 0.1, "z_loss": 1e-3, "reduction": "none"},
)


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of cross_entropy.

    Attributes:
        width: V.
        leading: The sizes before it.
        dtype: Of the logits.
        layout: How the logits lie in memory, one of LAYOUTS.
        regime: What values they have, one of REGIMES, or "far".
        ignored: How many of every four rows are.
        narrow: Targets are int32.
        reduction: As given to the op, like all that follow.
        label_smoothing: 0 … 1.
        z_loss: Weight of the squared log-sum-exp.
        inplace: The gradient takes the place of the logits.
        dloss: The loss's own gradient.
        generic: Whether `run_case` takes the generic kernels.
    """

    width: int
    leading: tuple[int, ...] = (5,)
    dtype: torch.dtype = FP32
    layout: str = "contiguous"
    regime: str = "normal"
    ignored: int = 1
    narrow: bool = False
    reduction: str = "mean"
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    inplace: bool = False
    dloss: float = 1.0
    generic: bool = False

    def __str__(self) -> str:
        parts = ["x".join(map(str, (*self.leading, self.width))), SHORT[self.dtype]]
        for field in dataclasses.fields(self)[3:]:
            if getattr(self, field.name) != field.default:
                parts.append(f"{field.name}={getattr(self, field.name)}")
        return ",".join(parts).replace(" ", "_")

    @property
    def options(self) -> dict:
        """What the op and its reference take alike."""
        names = ("reduction", "label_smoothing", "z_loss")
        return {name: getattr(self, name) for name in names}


def widths(values=WIDTHS, dtypes=(FP32, FP16, BF16), leading=(5,)) -> list[Case]:
    """Every width in every dtype."""
    return [Case(w, leading, d) for w, d in itertools.product(values, dtypes)]


def options(width: int, dtypes=(FP32, BF16)) -> list[Case]:
    """Every option, in memory of its own and in place, and gradients that are not 1."""
    cases = [Case(width, dtype=d, **o) for o in OPTIONS for d in dtypes]
    cases += [Case(width, dtype=d, inplace=True, **o) for o in OPTIONS[::2] for d in dtypes]
    cases += [Case(width, dtype=d, dloss=-0.3, inplace=i) for i in (False, True) for d in dtypes]
    return [*cases, Case(width, narrow=True), Case(width, ignored=4), Case(width, ignored=0)]


def layouts(width: int) -> list[Case]:
    """Every way that logits may lie in memory, in place where that is allowed."""
    leading = (2, 3)
    cases = [Case(width, leading, d, x) for x in LAYOUTS for d in (FP32, BF16)]
    in_place = ("contiguous", "sliced", "offset")
    return cases + [Case(width, leading, BF16, x, inplace=True, dloss=0.5) for x in in_place]


def regimes(width: int) -> list[Case]:
    """Values that break exponentials without a maximum, and masks."""
    return [Case(width, (6,), d, regime=r) for r in REGIMES for d in (FP32, FP16, BF16)]


def values(case: Case, device: str) -> torch.Tensor:
    """Logits in the case's regime, before they are laid out."""
    shape = (*case.leading, case.width)
    normal = 3 * torch.randn(shape, dtype=FP32, device=device)
    column = torch.arange(case.width, device=device)
    row = torch.arange(math.prod(case.leading), device=device).view(*case.leading, 1)
    made = {
        "normal": lambda: normal,
        "peaked": lambda: normal + 40.0 * (column == case.width // 2),
        "large": lambda: 3e4 + 1e3 * normal,
        "masked": lambda: normal.masked_fill(column != case.width // 2, -math.inf),
        "half masked": lambda: normal.masked_fill(column % 2 == 1, -math.inf),
        "equal": lambda: torch.full(shape, -7.5, device=device),
        "far": lambda: normal * torch.where(row % 3 == 2, 1.0, 1e15),
    }
    return made[case.regime]().to(case.dtype)


def make(case: Case, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and targets of a case."""
    x = lay_out(values(case, device), case.layout)
    targets = torch.randint(0, case.width, case.leading, device=device)
    if case.regime == "masked":
        targets.fill_(case.width // 2)
    row = torch.arange(targets.numel(), device=device).view(case.leading)
    targets = targets.masked_fill(row % 4 >= 4 - case.ignored, -100)
    return x, targets.int() if case.narrow else targets


def run(case: Case, logits, targets) -> list[torch.Tensor]:
    """The loss without a gradient, that with one, and the gradient of the logits."""
    alone = thunderkittens.cross_entropy(logits, targets, **case.options)
    return [alone, *differentiate(case, logits, targets)]


def differentiate(case: Case, logits, targets) -> list[torch.Tensor]:
    """The loss, and the gradient of the logits."""
    leaf = logits.detach().requires_grad_()
    # In place the logits must be computed; `clone` keeps how they lie, a view of it is the case's.
    x = copy_in_place(leaf) if case.inplace else leaf
    loss = thunderkittens.cross_entropy(x, targets, inplace=case.inplace, **case.options)
    dloss = torch.full_like(loss, case.dloss)
    (gradient,) = torch.autograd.grad(loss, leaf, dloss)
    return [loss.detach(), gradient]


def copy_in_place(leaf: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides and the same place between vectors of 16 bytes."""
    offset = leaf.data_ptr() % 16 // leaf.element_size()
    span = 1 + sum((s - 1) * d for s, d in zip(leaf.shape, leaf.stride(), strict=True))
    room = leaf.new_zeros(offset + span)
    return room.as_strided(leaf.shape, leaf.stride(), offset).copy_(leaf)


def check(case: Case, inputs, results) -> None:
    """Asserts the results of `run` against float64, element by element and row by row."""
    logits, targets = inputs
    alone, loss, gradient = results
    wants = tolerance.cross_entropy(logits, targets, case.dloss, **case.options)
    assert loss.dtype == (FP64 if case.dtype == FP64 else FP32)
    assert gradient.dtype == case.dtype
    assert torch.equal(alone, loss) or bool(alone.isnan().any())
    assert_close(loss, *wants[0], "loss")
    assert_close(gradient, *wants[1], "gradient")


EXAMPLE = Case(1024, (20,), BF16)  # of `make sim`
# What tests/tools/budgets.py measures.
BUDGETS = {
    "cross_entropy": Case(1024, (300,), BF16),
    "cross_entropy, few rows": Case(1024, (20,), BF16),
    "cross_entropy, clusters": Case(9001, (1,), BF16, ignored=0),
    "cross_entropy, streamed": Case(33001, (5,), BF16, dloss=0.5),
    "cross_entropy, two passes": Case(33001, (5,), BF16, dloss=0.5, generic=True),
}
SMALL = "--width 72 --leading 2,3 --no-narrow"  # options of `make sim`, for its tests


def run_case(case: Case, inputs) -> list[torch.Tensor]:
    """The calls of a case, forward and backward, by the backend in force."""
    with kernel_kinds.taking(case.generic):
        return differentiate(case, *inputs)


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave against float64."""
    check(case, inputs, [results[0], *results])


def check_rows_that_are_undefined(
    device: str, width: int = 1100, at_once: int = 8, *, outside: bool = True
) -> None:
    """Asserts that a NaN, +inf, a bad target or no finite logit spoils its row and no other.

    Args:
        device: Where.
        width: V.
        at_once: Rows of a call.
        outside: Whether there are bad targets; on the CPU they raise.
    """
    x = torch.randn(8, width, dtype=FP32, device=device)
    targets = torch.randint(0, width, (8,), device=device)
    want = losses_of_calls(x, targets, at_once)
    spoilt, aims = x.clone(), targets.clone()
    spoilt[1, width - 1], spoilt[2, 0], spoilt[3] = math.nan, math.inf, -math.inf
    if outside:
        aims[4], aims[5], aims[6] = width, -1, -(2**40)
    last = 6 if outside else 3  # of those that are spoilt
    got = losses_of_calls(spoilt, aims, at_once)
    for now, before, name in zip(got, want, ("loss", "gradient"), strict=True):
        assert torch.equal(now[0], before[0]), name
        assert torch.equal(now[last + 1 :], before[last + 1 :]), name
        assert now[1 : last + 1].isnan().all(), name


def check_targets_without_probability(device: str, width: int = 300) -> None:
    """Asserts an infinite loss, and a finite gradient, where the target's logit is −inf."""
    x = torch.randn(3, width, dtype=FP32, device=device)
    targets = torch.tensor([5, 6, 7], device=device)
    x[1, 6] = -math.inf
    loss, gradient = losses(x, targets)
    assert loss.isinf().tolist() == [False, True, False]
    assert loss[1] > 0
    assert gradient[1, 6] == -1
    assert gradient.isfinite().all()


def check_no_targets(device: str) -> None:
    """Asserts what torch gives where every row is ignored: a mean of nothing, zeros."""
    x = torch.randn(3, 40, device=device, requires_grad=True)
    targets = torch.full((3,), 7, device=device)
    for reduction, want in (("mean", math.nan), ("sum", 0.0)):
        options = {"ignore_index": 7, "reduction": reduction}
        loss = thunderkittens.cross_entropy(x, targets, **options)
        theirs = torch.nn.functional.cross_entropy(x, targets, **options)
        for result in (loss, theirs):
            assert torch.equal(result.cpu(), torch.tensor(want)) or math.isnan(want)
            assert math.isnan(result.item()) == math.isnan(want)
            assert torch.equal(torch.autograd.grad(result, x)[0], torch.zeros_like(x))


def check_gradients_of_loss_that_are_not_finite(device: str, width: int = 300) -> None:
    """Asserts zeros in ignored rows, as in torch, whatever the loss's own gradient is."""
    for dtype, reduction, inplace, value in itertools.product(
        (FP32, BF16), ("mean", "none"), (False, True), (math.inf, -math.inf, math.nan)
    ):
        x = torch.randn(5, width, device=device, requires_grad=True)
        targets = torch.tensor([3, -100, 0, -100, width - 1], device=device)
        logits = (2 * x).to(dtype)
        options = {"reduction": reduction, "inplace": inplace}
        loss = thunderkittens.cross_entropy(logits, targets, **options)
        dloss = torch.full_like(loss, value)
        for last in (False, True):  # in memory of its own, then perhaps in place
            (gradient,) = torch.autograd.grad(loss, x, dloss, retain_graph=not last)
            assert torch.equal(gradient[1::2], torch.zeros_like(gradient[1::2]))
            assert not gradient[::2].isfinite().any()


def check_targets_outside_are_told(device: str, width: int, wait) -> None:
    """Asserts that under THUNDERKITTENS_STRICT=1 a bad target is an error of the next call, once.

    Args:
        device: Where.
        width: V.
        wait: Called before what is to raise.
    """
    x = torch.randn(6, width, device=device)
    right = torch.randint(0, width, (6,), device=device)
    leaf = x.clone().requires_grad_()
    recorded = thunderkittens.cross_entropy(leaf, right)
    weight = torch.randn(width, 8, device=device)
    calls = {
        "cross_entropy": lambda: thunderkittens.cross_entropy(x, right),
        "cross_entropy_backward": lambda: torch.autograd.grad(recorded, leaf, retain_graph=True),
        "linear_cross_entropy": lambda: thunderkittens.linear_cross_entropy(
            x[:, :8], weight, right
        ),
    }
    for name, outside in zip(calls, (width, -1, 2**40), strict=True):
        wrong = right.clone()
        wrong[2] = outside
        assert thunderkittens.cross_entropy(x, wrong).isnan()
        wait()
        message = f"^{name}: targets of an earlier call on {device} must be .*, got {outside} "
        with pytest.raises(IndexError, match=message):
            calls[name]()
        for call in calls.values():
            call()
            wait()


def losses_of_calls(x: torch.Tensor, targets: torch.Tensor, at_once: int) -> list[torch.Tensor]:
    """Each row's loss and gradient, by calls of `at_once` rows."""
    calls = zip(x.split(at_once), targets.split(at_once), strict=True)
    parts = zip(*(losses(*call) for call in calls), strict=True)
    return [torch.cat(part) for part in parts]


def losses(x: torch.Tensor, targets: torch.Tensor, **options) -> list[torch.Tensor]:
    """Each row's loss and gradient."""
    leaf = x.detach().requires_grad_()
    loss = thunderkittens.cross_entropy(leaf, targets, reduction="none", **options)
    (gradient,) = torch.autograd.grad(loss, leaf, torch.ones_like(loss))
    return [loss.detach(), gradient]
