"""Models that differ in the layer that mixes tokens alone: what they learn, and what they cost.

    python -m demos.linear_models
    python -m demos.linear_models --mixers mamba2,softmax --parts recall --pairs 12 --steps 600

Three parts: associative recall, the text of demos/train_gpt, and the cost of a long context. Every
model also answers token by token, with what its mixer remembers. --out gets learning.png and
context.png. Exit code 1 if a model recalls less than half, or says something else step by step.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import context
import tasks
import torch
from models import data
from models.command_line import device, number, text
from models.drawing import Panel, draw
from models.mixers import MIXERS, MixerModel, bytes_of
from torch import Tensor

import thunderkittens as tk

PARTS = ("recall", "text", "context")
WINDOW = 64  # tokens: up to there Hedgehog's steps are what `forward` gives


@dataclass
class Result:
    """What became of a model."""

    steps: list[int] = field(default_factory=list)  # when it was examined
    losses: list[float] = field(default_factory=list)  # nats a target, of held-out batches
    accuracies: list[float] = field(default_factory=list)
    stepped: float = 0.0  # the last accuracy again, token by token
    state: int = 0  # bytes remembered of a sequence
    seconds: float = 0.0
    sample: str = ""


def autocast(device: torch.device) -> torch.autocast:
    """To bfloat16 on a GPU, where our ops are then kernels."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu")


@torch.no_grad()
def examine(model: MixerModel, held_out: list[tasks.Batch]) -> tuple[float, float]:
    """Mean loss of what is asked, and the share that is right."""
    sums = torch.zeros(3, dtype=torch.double)
    for tokens, targets in held_out:
        logits, asked = model(tokens), targets >= 0
        right = (logits.argmax(-1) == targets)[asked].sum()
        loss = tk.cross_entropy(logits.float(), targets, reduction="sum")
        sums += torch.stack([loss.double(), right.double(), asked.sum().double()]).cpu()
    return float(sums[0] / sums[2]), float(sums[1] / sums[2])


def examine_by_steps(model: MixerModel, held_out: list[tasks.Batch]) -> tuple[float, int]:
    """The share that is right, token by token; and the bytes that a sequence's state has then."""
    right = asked = size = 0
    for tokens, targets in held_out:
        states = model.init_state(len(tokens))
        said = [model.step(token, states).argmax(-1) for token in tokens.unbind(1)]
        right += int((torch.stack(said, 1) == targets).sum())
        asked += int((targets >= 0).sum())
        size = sum(bytes_of(state.mixer) for state in states) // len(tokens)
    return right / asked, size


def generate(model: MixerModel, prompt: str, count: int, device: torch.device) -> str:
    """The prompt and `count` bytes after it: it is read at once, and the rest goes by steps."""
    tokens = list(prompt.encode())
    states = model.init_state(1)
    logits = model.read(torch.tensor([tokens], device=device), states)
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        likely = torch.softmax(logits[0].float().cpu() / 0.7, -1)  # the temperature
        tokens.append(int(torch.multinomial(likely, 1, generator=generator)))
        logits = model.step(torch.tensor([tokens[-1]], device=device), states)
    return bytes(tokens).decode(errors="replace")


def run(part: str, mixer: str, options: argparse.Namespace) -> Result | list[context.Cost]:
    """One model of one part, alone in its process on a CPU."""
    torch.set_num_threads(1)  # the models are too small for more: they would wait for each other
    if part == "context":
        return context.measure(mixer, options.context, options.device)
    if part == "recall":
        task, steps, rate = tasks.recall(options.pairs, options.batch), options.steps, 1e-2
    else:
        task = tasks.text(options.data, options.length, options.text_batch)
        steps, rate = options.text_steps, 1e-2
    return train(mixer, task, steps, rate, options)


def train(
    mixer: str, task: tasks.Task, steps: int, rate: float, options: argparse.Namespace
) -> Result:
    """AdamW with one cycle of the learning rate, and an examination ten times."""

    def here(batch: tasks.Batch) -> tuple[Tensor, ...]:
        return tuple(t.to(options.device) for t in batch)

    torch.manual_seed(0)
    sizes = {"width": options.width, "heads": options.heads, "layers": options.layers}
    model = MixerModel(mixer, task.symbols, **sizes).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    held_out, result = [here(batch) for batch in task.held_out], Result()
    start = time.perf_counter()
    for step in range(1, steps + 1):
        tokens, targets = here(task.batch(step - 1))
        with autocast(options.device):
            loss = tk.cross_entropy(model(tokens).float(), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % max(1, steps // 10) == 0 or step == steps:
            with autocast(options.device):
                loss, accuracy = examine(model, held_out)
            result.steps.append(step)
            result.losses.append(loss)
            result.accuracies.append(accuracy)
    result.seconds = time.perf_counter() - start
    with autocast(options.device):
        result.stepped, result.state = examine_by_steps(model, held_out)
        if task.symbols == 256:
            result.sample = generate(model, options.prompt, options.tokens, options.device)
    return result


def run_all(part: str, options: argparse.Namespace) -> Iterator[tuple[str, object]]:
    """(mixer, its result), in order; on a CPU in as many processes as --jobs."""
    if options.jobs == 1 or part == "context":  # whose times are of one model alone
        yield from ((mixer, run(part, mixer, options)) for mixer in options.mixers)
        return
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        futures = [(mixer, pool.submit(run, part, mixer, options)) for mixer in options.mixers]
        yield from ((mixer, future.result()) for mixer, future in futures)


def differs(mixer: str, result: Result, length: int) -> bool:
    """Whether steps say something else than the whole, where both have the same windows."""
    same_windows = mixer != "hedgehog" or length <= WINDOW
    return same_windows and abs(result.stepped - result.accuracies[-1]) > 0.01


def learn(part: str, options: argparse.Namespace) -> tuple[list[Panel], bool]:
    """Trains on one part and prints it; the curves, and whether all went well."""
    print(f"\n{part:11}{'loss':>9}{'at once':>9}{'by steps':>10}{'state':>10}{'trained':>9}")
    results, good = {}, True
    length = 4 * options.pairs if part == "recall" else options.length
    for mixer, result in run_all(part, options):
        results[mixer] = result
        print(
            f"{mixer:11}{result.losses[-1]:9.3f}{result.accuracies[-1]:9.1%}"
            f"{result.stepped:10.1%}{result.state:8} B{result.seconds:7.1f} s",
            flush=True,
        )
        good &= not differs(mixer, result, length)
        good &= part != "recall" or result.accuracies[-1] >= 0.5
    for mixer, result in results.items():
        if result.sample:
            print(f"{mixer:11}{result.sample!r}")
    curves = {
        f"{part}: loss (nats)": {m: (r.steps, r.losses) for m, r in results.items()},
        f"{part}: share that is right": {m: (r.steps, r.accuracies) for m, r in results.items()},
    }
    return [Panel("step", name, lines) for name, lines in curves.items()], good


def weigh(options: argparse.Namespace) -> list[Panel]:
    """Prints what contexts cost; the curves."""
    print(f"\n{'context':11}{'tokens':>9}{'read':>11}{'peak':>11}{'a step':>11}{'state':>12}")
    costs: dict[str, list[context.Cost]] = {}
    for mixer, of_mixer in run_all("context", options):
        costs[mixer] = of_mixer
        for c in (of_mixer[0], of_mixer[-1]):
            print(
                f"{mixer:11}{c.tokens:9}{1e3 * c.seconds:8.1f} ms{c.peak / 2**20:7.1f} MiB"
                f"{1e3 * c.step:8.2f} ms{c.state / 2**10:8.0f} KiB",
                flush=True,
            )
    values = {
        "to read the context (ms)": lambda c: 1e3 * c.seconds,
        "memory that takes, at most (MiB)": lambda c: c.peak / 2**20,
        "a step after it (ms)": lambda c: 1e3 * c.step,
        "state (MiB)": lambda c: c.state / 2**20,
    }
    return [
        Panel(
            "tokens of context",
            name,
            {m: ([c.tokens for c in cs], [value(c) for c in cs]) for m, cs in costs.items()},
            log=True,
        )
        for name, value in values.items()
    ]


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="linear_models",
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    whole = number(int, 1)
    parser.add_argument("--mixers", default=",".join(MIXERS), help="which of these")
    parser.add_argument("--parts", default=",".join(PARTS), help="which of these")
    group = parser.add_argument_group("the models that learn")
    group.add_argument("--width", type=whole, default=64, help="channels")
    group.add_argument("--heads", type=whole, default=2, help="each of width / heads channels")
    group.add_argument("--layers", type=whole, default=1, help="blocks of a mixer and an MLP")
    group = parser.add_argument_group("recall")
    group.add_argument("--pairs", type=number(int, 1, tasks.KEYS), default=6, help="to recall")
    group.add_argument("--steps", type=whole, default=250, help="of the optimizer")
    group.add_argument("--batch", type=whole, default=32, help="sequences of a step")
    group = parser.add_argument_group("text")
    group.add_argument("--data", help="file, folder or glob; None is Python's standard library")
    group.add_argument("--length", type=whole, default=128, help="bytes of a sequence")
    group.add_argument("--text-steps", type=whole, default=100, help="of the optimizer")
    group.add_argument("--text-batch", type=whole, default=16, help="sequences of a step")
    group.add_argument("--prompt", type=text, default="    def ", help="of the sample")
    group.add_argument("--tokens", type=whole, default=60, help="bytes of the sample after it")
    group = parser.add_argument_group("context and run")
    group.add_argument("--context", type=number(int, context.SHORTEST), help="the longest, tokens")
    group.add_argument("--out", type=Path, default=Path("runs/linear_models"), help="for pictures")
    group.add_argument("--device", type=device, default="auto", help="auto, cpu, cuda, cuda:1 …")
    group.add_argument("--jobs", type=whole, help="models trained at once; None: a CPU's cores")
    options = parser.parse_args(arguments)
    for name, known in (("mixers", tuple(MIXERS)), ("parts", PARTS)):
        given = getattr(options, name).split(",")
        if unknown := [word for word in given if word not in known]:
            parser.error(f"--{name} must be of {', '.join(known)}, got {unknown[0]}")
        setattr(options, name, given)
    if options.width % (2 * options.heads):
        parser.error(f"--width {options.width} is no multiple of 2 · --heads {options.heads}")
    if not options.prompt:
        parser.error("--prompt is empty")
    on_gpu = options.device.type == "cuda"
    options.context = options.context or (1 << 17 if on_gpu else 1 << 14)
    options.jobs = 1 if on_gpu else options.jobs or min(os.cpu_count(), len(options.mixers))
    return options


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = parse_options(arguments)
    panels, good = [], True
    try:
        for part in [part for part in PARTS[:2] if part in options.parts]:
            curves, went_well = learn(part, options)
            panels, good = panels + curves, good and went_well
        pictures = {"learning.png": panels}
        if "context" in options.parts:
            pictures["context.png"] = weigh(options)
    except data.DataError as error:
        print(f"linear_models: {error}", file=sys.stderr)
        return 2
    for name, drawn in pictures.items():
        if drawn:
            print(draw(options.out / name, drawn) or f"drawn: {options.out / name}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
