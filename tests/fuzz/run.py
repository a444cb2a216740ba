"""Runs a case: twice or more, among other neighbours, beside other streams, in a CUDA graph."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor

import thunderkittens
from tests.fuzz import case as cases
from tests.fuzz import judge
from tests.fuzz.case import Case, Tensors
from tests.fuzz.draw import Draw
from tests.fuzz.placement import GUARD, Placed, same_bits
from thunderkittens import _backend

NOTHING = contextlib.nullcontext()
POLICIES = ("eager", "lazy", "random")  # of the simulator: the bits must not depend on it
MANY = 6  # runs of some cases
NOISE = 2048  # rows and columns of the products that run beside


@dataclasses.dataclass(frozen=True)
class Setting:
    """Where the cases run, by which backend; race mode; of two kernels the generic one; and whether
    they are a GPU's cases on any device."""

    device: str
    backend: str
    race: bool = False
    generic: bool = False
    large: bool = False

    @property
    def options(self) -> str:
        said = f"--device {self.device} --backend {self.backend}"
        said += " --race" * self.race + " --generic" * self.generic
        return said + " --large" * self.large

    @property
    def kernels(self) -> bool:
        """Whether our kernels compute what they take."""
        return self.backend == "simulator" or (self.device == "cuda" and self.backend == "auto")

    @contextlib.contextmanager
    def scope(self, policy: str, seed: int) -> Iterator[None]:
        options = {"kernel": "generic"} if self.generic else {}
        if self.backend == "simulator":
            number = seed if policy == "random" else None
            options |= {"policy": policy, "seed": number, "race": self.race}
        with thunderkittens.backend(self.backend, **options):
            yield


@dataclasses.dataclass
class Outcome:
    """What became of a case: failures in words, and whether the control was noticed."""

    failures: list[str]
    noticed: bool | None = None


class Given(torch.autograd.Function):
    """A tensor that a graph has computed, and that may be written in place."""

    @staticmethod
    def forward(ctx, leaf: Tensor, holder: list[Tensor]) -> Tensor:
        return holder[0]

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Whatever torch allocates is full of NaN; so an element that nobody writes is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def watched(placed: list[Placed]) -> Iterator[None]:
    """The simulator reports at once who touches a guard."""
    entered = []
    for simulator in _backend.loaded_simulators():
        for each in placed:
            if each.span and each.view.is_cpu:
                size = each.view.element_size()
                simulator.kittens_sim_guard(each.view.data_ptr(), each.span * size, GUARD)
                entered.append((simulator, each.view.data_ptr()))
    try:
        yield
    finally:
        for simulator, address in entered:
            simulator.kittens_sim_release_guards(address)


def compute(
    case: Case, inputs: Tensors, incoming: Tensors, forward: AbstractContextManager = NOTHING
) -> Tensors:
    """The call, within `forward`, and its backward."""
    tensors, leaves = dict(inputs), []
    for name in case.leaves:
        if name in case.written:
            leaf = inputs[name].detach().clone().requires_grad_()
            tensors[name] = Given.apply(leaf, [inputs[name].detach()])
        else:
            leaf = inputs[name].detach().requires_grad_()
            tensors[name] = leaf
        leaves.append(leaf)
    with forward:
        results = case.call(tensors)
    gradients: Tensors = {}
    if case.incoming and leaves:
        # A result on which no leaf has an influence has no gradient to pass on.
        names = [name for name in case.incoming if results[name].requires_grad]
        outputs, given = [results[n] for n in names], [incoming[n] for n in names]
        found = torch.autograd.grad(outputs, leaves, given)
        gradients = {f"d{name}": g for name, g in zip(case.leaves, found, strict=True)}
    return {name: t.detach() for name, t in {**results, **gradients}.items()}


class Runner:
    """Runs the cases of one setting.

    Args:
        setting: Where.
        control: Whether to spoil an element of each case as well.
    """

    def __init__(self, setting: Setting, control: bool = False) -> None:
        self.setting = setting
        self.control = control
        self.families = cases.ops()
        if setting.device == "cuda":
            self._side, self._other = torch.cuda.Stream(), torch.cuda.Stream()
            self._noise = torch.randn(NOISE, NOISE, device="cuda", dtype=torch.bfloat16)
            self._room = torch.empty_like(self._noise)
            self._pool = torch.cuda.graph_pool_handle()
            self._holder = torch.cuda.CUDAGraph()  # a pool ends with the last graph that has it
            with torch.cuda.graph(self._holder, pool=self._pool):
                torch.zeros(1, device="cuda")

    def run(self, op: str, seed: int) -> Outcome:
        """Draws the case and judges it."""
        try:
            case = self._drawn(op, seed)
        except Exception:
            return Outcome([f"cannot be drawn: {traceback.format_exc(limit=-3)}"])
        try:
            return self._judged(op, seed, case)
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            return Outcome([f"{text} [{case.title}]"])

    def first_results(self, op: str, seed: int) -> Tensors:
        """The results of one run."""
        return self._once(self._drawn(op, seed), 0, "eager", seed)

    def _drawn(self, op: str, seed: int) -> Case:
        setting = self.setting
        draw = Draw(op, seed, setting.device, setting.kernels, setting.large)
        return self.families[op].make(draw, op)

    def _judged(self, op: str, seed: int, case: Case) -> Outcome:
        chooser = random.Random(f"run:{op}:{seed}")
        verdicts, poison = judge.Verdicts(), chooser.random() < 0.7
        runs = MANY if chooser.random() < 0.1 and self.setting.backend != "simulator" else 2
        with poisoned() if poison else NOTHING:
            first = self._once(case, 0, "eager", seed)
            self._check_buffers(case, verdicts)
            for turn in range(1, runs):
                how, again = self._again(case, turn, chooser, seed)
                self._check_buffers(case, verdicts)
                for name, result in again.items():
                    if name not in case.nondeterministic:
                        same = same_bits(result, first[name])
                        verdicts.add(f"{name} has other bits {how}", same)
        judged = case.judge(first)
        for name, each in judged.items():
            got = first[name]
            if got.shape != each.want.shape:
                verdicts.add(f"{name} has shape {list(got.shape)}", False)
            else:
                verdicts.add(name, judge.right(got, each).all())
        failures = []
        for name in verdicts.failed():
            known = name in judged and first[name].shape == judged[name].want.shape
            failures.append(judge.explain(name, first[name], judged[name]) if known else name)
        failures = [f"{text} [{case.title}]" for text in dict.fromkeys(failures)]
        noticed = judge.control(f"{op}:{seed}", first, judged) if self.control else None
        return Outcome(failures, noticed)

    def _check_buffers(self, case: Case, verdicts: judge.Verdicts) -> None:
        for name, placed in case.placed.items():
            unchanged = placed.unchanged(name in case.written)
            verdicts.add(f"{name}'s memory was written", unchanged)

    # ---- Runs -----------------------------------------------------------------------------------

    def _laid_out(self, case: Case, turn: int) -> tuple[Tensors, Tensors]:
        inputs = {name: placed.lay_out(turn) for name, placed in case.inputs.items()}
        return inputs, {name: placed.lay_out(turn) for name, placed in case.incoming.items()}

    def _once(
        self,
        case: Case,
        turn: int,
        policy: str,
        seed: int,
        forward: AbstractContextManager = NOTHING,
    ) -> Tensors:
        tensors = self._laid_out(case, turn)
        with self.setting.scope(policy, seed), watched(list(case.placed.values())):
            return self._kept(case, compute(case, *tensors, forward), tensors[0])

    def _kept(self, case: Case, results: Tensors, inputs: Tensors) -> Tensors:
        """With what was written in place, copied before it is laid out again."""
        written = {name: inputs[name].clone() for name in case.written}
        return {**{n: t.clone() if case.written else t for n, t in results.items()}, **written}

    def _again(
        self, case: Case, turn: int, chooser: random.Random, seed: int
    ) -> tuple[str, Tensors]:
        """How it was run this time, and the results."""
        policy, way = chooser.choice(POLICIES), chooser.random()
        if way < 0.1 and case.dtype in (torch.float16, torch.bfloat16):
            return "under autocast", self._under_autocast(case, turn, policy, seed)
        if self.setting.device != "cuda" or way < 0.4:
            how = f", {policy}" if self.setting.backend == "simulator" else ""
            return f"in another run{how}", self._once(case, turn, policy, seed)
        if way < 0.75 or not case.graph:
            return "beside other streams", self._beside_noise(case, turn, chooser, seed)
        return "in a CUDA graph", self._in_graph(case, turn)

    def _under_autocast(self, case: Case, turn: int, policy: str, seed: int) -> Tensors:
        """Of the inputs' own dtype, which casts none; for kernels the backward is inside, too."""
        autocast = torch.autocast(self.setting.device, case.dtype)
        inside = self.setting.kernels and case.own
        with autocast if inside else NOTHING:
            return self._once(case, turn, policy, seed, NOTHING if inside else autocast)

    def _beside_noise(self, case: Case, turn: int, chooser: random.Random, seed: int) -> Tensors:
        """On a stream of its own, while another one multiplies matrices."""
        with torch.cuda.stream(self._other):
            for _ in range(chooser.randint(1, 4)):
                torch.mm(self._noise, self._noise, out=self._room)
        current = torch.cuda.current_stream()
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            results = self._once(case, turn, "eager", seed)
        current.wait_stream(self._side)
        current.wait_stream(self._other)
        return results

    def _in_graph(self, case: Case, turn: int) -> Tensors:
        """Captured, then replayed on tensors that were laid out again."""
        inputs, incoming = self._laid_out(case, 0)
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side), self.setting.scope("eager", 0):
            graph.capture_begin(pool=self._pool)
            try:
                results = compute(case, inputs, incoming)
            finally:
                graph.capture_end()
            for replay in range(2):
                self._laid_out(case, turn + replay)
                graph.replay()
            kept = {name: t.clone() for name, t in self._kept(case, results, inputs).items()}
        current.wait_stream(self._side)
        torch.cuda.synchronize()  # before the graph and its memory are gone
        return kept
