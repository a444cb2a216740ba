"""The problems on which AdamW is judged, on every backend: one list for all tests."""

import dataclasses
import math

import torch
from torch import Tensor

import thunderkittens
from thunderkittens.testing import assert_close, memory, tolerance

FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SHORT = {FP32: "fp32", FP16: "fp16", BF16: "bf16", FP64: "fp64"}
NORMS = ("none", "clip", "small", "infinite", "skip", "skip_infinite", "skip_nan")
LAYOUTS = ("contiguous", "offset", "permuted", "other_grad")
MAX_NORM, LR, WEIGHT_DECAY, BETAS, EPS = 0.5, 3e-2, 0.1, (0.9, 0.999), 1e-8
UNIT = 2.0**-24  # half a unit in the last place of float32

# Around a run, a thread's elements, a pass and a chunk of a block.
SIZES = (1, 3, 4, 7, 8, 9, 1023, 1024, 1025, 2047, 2048, 2049, 4100, 6151)


@dataclasses.dataclass(frozen=True)
class Case:
    """One step of some parameters.

    Attributes:
        sizes: Elements of each parameter.
        dtype: Of parameters and gradients.
        moments: Of exp_avg and exp_avg_sq.
        master: Whether there are master weights.
        norm: What the norm of the gradients is for, one of NORMS.
        step: Of this step, from 1.
        stochastic: Whether bfloat16 is rounded at random.
        maximize: Whether it goes up.
        layout: How the tensors lie in memory, one of LAYOUTS.
        single: Whether the public function is called, once for each parameter.
    """

    sizes: tuple[int, ...] = (2049, 8, 1031)
    dtype: torch.dtype = FP32
    moments: torch.dtype = FP32
    master: bool = False
    norm: str = "none"
    step: int = 1
    stochastic: bool = False
    maximize: bool = False
    layout: str = "contiguous"
    single: bool = False

    def __str__(self) -> str:
        fields = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        shown = [f"{n}={SHORT.get(v, v)}" for n, v, default in fields if v != default]
        return ",".join(shown).replace(" ", "") or "default"

    @property
    def tensors(self) -> int:
        """Of each parameter: grad, param, both moments, and the master weights."""
        return 5 if self.master else 4

    @property
    def skips(self) -> bool:
        """Whether the step is to change nothing."""
        return self.norm in ("skip_infinite", "skip_nan")


def types() -> list[Case]:
    """Every kernel."""
    kinds = [(FP32, False), *((t, m) for t in (FP16, BF16) for m in (False, True))]
    return [
        Case(dtype=t, moments=m, master=master, norm="clip", step=3)
        for t, master in kinds
        for m in (FP32, BF16)
    ]


def all_cases(sizes: tuple[int, ...] = SIZES) -> list[Case]:
    """Types, sizes, norms, steps, layouts, numbers drawn at random, and the public function."""
    return [
        *types(),
        Case(sizes),
        Case(sizes, BF16, BF16),
        Case(sizes, BF16, FP32, master=True),
        Case((0, 5, 0, 3000, 0), norm="clip"),
        Case((0,)),
        Case(tuple(range(1, 200))),  # more than one launch
        Case(tuple(range(1, 200)), BF16, norm="skip"),
        *(Case(norm=norm) for norm in NORMS[1:]),
        *(Case(norm=norm, dtype=BF16, master=True) for norm in NORMS[1:]),
        *(Case(step=step) for step in (2, 1000, 100_000)),
        Case(maximize=True),
        Case(maximize=True, norm="clip"),
        *(Case(layout=layout) for layout in LAYOUTS[1:]),
        *(Case(layout=layout, dtype=BF16, master=True) for layout in LAYOUTS[1:]),
        *random_cases(),
        *(Case((1030,), t, single=True) for t in (FP32, FP16, BF16)),
        Case((1030,), BF16, BF16, norm="clip", single=True, step=7, stochastic=True),
    ]


def random_cases() -> list[Case]:
    """With stochastic rounding, of parameters, moments, or both."""
    kinds = [(BF16, FP32, False), (BF16, BF16, False), (BF16, BF16, True), (FP32, BF16, False)]
    return [
        Case(dtype=t, moments=m, master=master, stochastic=True, step=step, layout=layout)
        for t, m, master in kinds
        for step, layout in ((1, "contiguous"), (70_001, "offset"))
    ]


def lay_out(values: Tensor, layout: str, is_grad: bool) -> Tensor:
    """The same values with other strides or another start."""
    if layout == "offset":
        return values.new_zeros(values.numel() + 1)[1:].copy_(values)
    rows = values.view(-1, 1) if values.numel() % 2 else values.view(-1, 2)
    if layout == "permuted":
        return rows.t()
    if layout == "other_grad":
        return rows.t().contiguous() if is_grad else rows.t()
    return values


def make(case: Case, device: str = "cpu") -> list[Tensor]:
    """grad, param, exp_avg, exp_avg_sq and the master weights of each parameter in turn; the norm.

    The norm is that of the gradients, or one of NORMS' own.
    """
    inputs: list[Tensor] = []
    for size in case.sizes:

        def normal(scale: float, size: int = size) -> Tensor:
            return scale * torch.randn(size, device=device)

        master = normal(0.1)
        grad, m, v = normal(0.02), normal(0.01), normal(0.01).square()
        if case.step == 1:
            m, v = torch.zeros_like(m), torch.zeros_like(v)
        dtypes = (case.dtype, case.dtype, case.moments, case.moments, FP32)
        tensors = (grad, master, m, v, master)[: case.tensors]
        made = [t.to(dtype) for t, dtype in zip(tensors, dtypes, strict=False)]
        inputs += [lay_out(t, case.layout, i == 0) for i, t in enumerate(made)]
    grads = [t.double().square().sum() for t in inputs[:: case.tensors]]
    norm = torch.stack(grads).sum().sqrt().float()
    own = {"small": 0.01, "infinite": math.inf, "skip_infinite": math.inf, "skip_nan": math.nan}
    return [*inputs, torch.full_like(norm, own[case.norm]) if case.norm in own else norm]


BAND = 64  # elements of a guard


def copied(case: Case, inputs, neighbours: float = math.nan) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors that a step may write, which lie as those given do between guards; their buffers."""
    tensors, buffers = [], []
    first = BAND + (1 if case.layout == "offset" else 0)
    for t in inputs:
        buffer = torch.full((t.numel() + 2 * BAND,), neighbours, dtype=t.dtype, device=t.device)
        tensors.append(buffer.as_strided(t.shape, t.stride(), first).copy_(t))
        buffers.append(buffer)
    return tensors, buffers


def run_between_guards(case: Case, inputs) -> list[Tensor]:
    """`run_case` of copies: nothing but them is written, and what lies around changes no bit."""
    runs = []
    for neighbours in (math.nan, 1e4):
        tensors, buffers = copied(case, inputs, neighbours)
        runs.append(step_in_place(case, tensors))
        for t, buffer in zip(tensors, buffers, strict=True):
            guards = torch.ones_like(buffer, dtype=torch.bool)
            guards.as_strided(t.shape, t.stride(), t.storage_offset()).fill_(False)
            untouched = torch.full_like(buffer, neighbours)[guards]
            assert memory.bits_equal(buffer[guards], untouched), "written outside of a tensor"
    assert all(map(memory.bits_equal, *runs)), "memory outside of a tensor was read"
    return runs[0]


def options_of(case: Case) -> dict:
    """Of both ops."""
    return {
        "lr": LR,
        "beta1": BETAS[0],
        "beta2": BETAS[1],
        "eps": EPS,
        "weight_decay": WEIGHT_DECAY,
        "maximize": case.maximize,
        "max_norm": MAX_NORM if case.norm in ("clip", "small", "infinite", "skip") else None,
        "skip_nonfinite": case.norm.startswith("skip"),
        "stochastic_rounding": case.stochastic,
        "seed": 2**40 + 12345,
    }


def run_case(case: Case, inputs) -> list[Tensor]:
    """What `step_in_place` gives of copies."""
    return step_in_place(case, copied(case, inputs)[0])


def step_in_place(case: Case, inputs) -> list[Tensor]:
    """All tensors after the step, then the steps and the number of steps skipped."""
    *tensors, norm = inputs
    lists = [list(tensors[i :: case.tensors]) for i in range(case.tensors)]
    options, count = options_of(case), len(case.sizes)
    given = None if case.norm == "none" else norm
    if case.single:
        for each in zip(*lists, strict=True):
            thunderkittens.adamw(*each, grad_norm=given, step=case.step, **options)
        return list(tensors)
    steps = [norm.new_full((), case.step - 1.0) for _ in range(count)]
    skipped = torch.zeros((), dtype=torch.int32, device=norm.device)
    masters = lists[4] if case.master else []
    numbers = [7 * i for i in range(count)]
    torch.ops.thunderkittens.adamw_foreach(
        *lists[:4], masters, steps, None, given, skipped, numbers, **options
    )
    return [*tensors, *steps, skipped.float()]


def check_case(case: Case, inputs, results) -> None:
    """Asserts what `run_case` gave by what it was given, element by element."""
    *tensors, norm = inputs
    count = case.tensors * len(case.sizes)
    for i, number in enumerate(range(0, count, case.tensors)):
        before = [t.double() for t in tensors[number : number + case.tensors]]
        after = results[number : number + case.tensors]
        if case.skips:
            for got, want in zip(after, before, strict=True):
                assert torch.equal(got.double(), want)
            continue
        for name, (want, bound) in expected(case, before, float(norm)).items():
            place = ("grad", "param", "exp_avg", "exp_avg_sq", "master").index(name)
            assert_close(after[place], want, bound, f"{name} {i}")
    if not case.single:
        steps = torch.stack(results[count:-1]) if case.sizes else norm.new_zeros(0)
        assert bool((steps == case.step - (1 if case.skips else 0)).all())
        assert float(results[-1]) == case.skips


def expected(case: Case, before: list[Tensor], norm: float) -> dict[str, tuple[Tensor, Tensor]]:
    """References in float64, each with its bound, by name; the gradient must stay what it is."""
    grad, param, m, v = before[:4]
    weight = before[4] if case.master else param
    factor = -1.0 if case.maximize else 1.0
    if case.norm in ("clip", "small", "infinite", "skip"):
        factor *= min(1.0, MAX_NORM / (norm + 1e-6))
    g, (beta1, beta2) = grad * factor, BETAS
    new_m = m + (1 - beta1) * (g - m)
    new_v = beta2 * v + (1 - beta2) * g.square()
    root = (new_v / (1 - beta2**case.step)).sqrt() + EPS
    scale = 1 / (1 - beta1**case.step) / root
    step = LR * (new_m * scale + WEIGHT_DECAY * weight)
    new = weight - step
    # The clip factor has three roundings, g one; m is the sum of a difference times a factor, and
    # v has no cancellation. The quotient's own are those of the docstring.
    size = m.abs() + (1 - beta1) * (g.abs() + m.abs())
    m_error = 8 * UNIT * size
    v_error = 16 * UNIT * new_v + 2.0**-149
    quotient = 32 * UNIT * size * scale
    error = LR * (quotient + 4 * UNIT * WEIGHT_DECAY * weight.abs())
    wants = {"exp_avg": (new_m, m_error), "exp_avg_sq": (new_v, v_error)}
    found = {"grad": (grad, torch.zeros_like(grad))}
    for name, (want, bound) in wants.items():
        found[name] = (want, bound + rounding(case, want, bound, case.moments))
    if case.master:
        found["master"] = (new, error + rounding(case, new, error, FP32))
        found["param"] = (new, error + rounding(case, new, error, case.dtype, nearest=True))
    else:
        found["param"] = (new, error + rounding(case, new, error, case.dtype))
    return found


def rounding(
    case: Case, want: Tensor, error: Tensor, dtype: torch.dtype, nearest: bool = False
) -> Tensor:
    """Half a unit in the last place, or where it is rounded at random a whole one."""
    units = 4 if case.stochastic and dtype == BF16 and not nearest else 2
    return units * tolerance.unit(dtype) * (want.abs() + error) + tolerance.floor(dtype)


EXAMPLE = Case((4096, 77), BF16, master=True, norm="clip")  # of `make sim`
# What tests/tools/budgets.py measures.
BUDGETS = {
    "float32": Case((4096, 1031)),
    "bfloat16, master weights": EXAMPLE,
    "bfloat16, stochastic": Case((4096, 1031), BF16, BF16, stochastic=True),
    "offset": Case((4096, 1031), layout="offset"),
}
SMALL = "--sizes 72,5"  # options of `make sim`, for its tests


def check_norm(sizes: tuple[int, ...], dtypes, device: str) -> Tensor:
    """Asserts the norm of gradients of some sizes, whose dtypes take turns; returns it.

    A thread adds squares one after the other, then they are added in a tree: at most 2,000 and a
    few dozen roundings of which the worst never come together; each is of its partial sum.
    """
    grads = [
        torch.randn(size, device=device).to(dtypes[i % len(dtypes)]) for i, size in enumerate(sizes)
    ]
    norm = torch.ops.thunderkittens.adamw_grad_norm(grads)
    want = torch.stack([g.double().square().sum() for g in grads]).sum().sqrt()
    chain = sum(sizes) / 2048 / 1056 * 8 + 8 + 40
    assert norm.dtype == FP32
    assert norm.shape == ()
    assert abs(float(norm) - float(want)) <= chain * UNIT * float(want)
    return norm


def words(count: int, seed: int, step: int, number: int) -> Tensor:
    """Philox 4x32 with 7 rounds, in Python's integers: a word for each element."""
    found = []
    low = 2**32 - 1
    for quad in range((count + 3) // 4):
        c = [quad & low, quad >> 32, step & low, number & low]
        key = [seed & low, seed >> 32 & low]
        for _ in range(7):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(b >> 32) ^ c[1] ^ key[0], b & low, (a >> 32) ^ c[3] ^ key[1], a & low]
            key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
        found += c
    return torch.tensor(found[:count])


def check_random_numbers(device: str) -> None:
    """Asserts bits that follow from seed, step, number and element alone.

    With a rate of 0, a parameter of bfloat16 moves nowhere; its moments, of a gradient and moments
    that are powers of two, lie between two numbers of bfloat16 at a place that is known.
    """
    count, seed, step, number = 41, 5, 9, 3
    grad = torch.ones(count, dtype=BF16, device=device)
    param, zeros = torch.zeros_like(grad), torch.zeros_like(grad)
    m, v = zeros.clone(), zeros.clone()
    options = {"lr": 0.0, "beta1": 0.9, "beta2": 0.7, "eps": EPS, "weight_decay": 0.0}
    options |= {"maximize": False, "max_norm": None, "skip_nonfinite": False}
    torch.ops.thunderkittens.adamw_foreach(
        [grad],
        [param],
        [m],
        [v],
        [],
        [torch.full((), step - 1.0, device=device)],
        None,
        None,
        None,
        [number],
        stochastic_rounding=True,
        seed=seed,
        **options,
    )
    sets = [words(count, seed, step, 2 * number + which) for which in (0, 1)]
    for got, value, bits in ((m, 1 - 0.9, sets[0] >> 16), (v, 1 - 0.7, sets[1] & 0xFFFF)):
        exact = torch.tensor(value, dtype=FP32).view(torch.int32).item()
        up = (exact & 0xFFFF) + bits >= 1 << 16
        low = exact & ~0xFFFF
        want = (torch.where(up, low + (1 << 16), low)).to(torch.int32).view(FP32)
        assert torch.equal(got.cpu().float(), want)
        assert 0 < int(up.sum()) < count
