"""Turns a trained GPT into a model of linear attention, in the two stages of LoLCATs.

    python -m demos.lolcats
    python -m demos.lolcats --checkpoint runs/mine/best --rank 0

Each layer's softmax attention becomes Hedgehog's: softmax over the latest 64 to 127 tokens, learned
features of all before. First the features learn to give what softmax gives, all else frozen; then
adapters of low rank (--rank 0: all weights) learn the text. --out gets lolcats.png.
Exit codes: 0 good; 1 it did not get better; 2 bad arguments, checkpoint or text.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from convert import Cache, Hedgehog, add_adapters, exchange, merge_adapters
from models import checkpoint, data
from models.command_line import device, number, text
from models.drawing import Panel, draw
from models.gpt2 import GPT2, generate
from torch import Tensor, nn

import thunderkittens as tk

DEFAULT_CHECKPOINT = Path(__file__).resolve().parents[1] / "checkpoints" / "python-4m"
WINDOW = 128  # tokens, of which the features see nothing
HELD_OUT = 0.05  # the share of the text that is evaluated on, as in demos/train_gpt


def autocast(device: torch.device) -> torch.autocast:
    """To bfloat16 on a GPU, nothing on a CPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu")


def loss_of(model: GPT2, batch: Tensor) -> Tensor:
    """Mean cross entropy of the next token; batch: [B, length + 1]."""
    with autocast(batch.device):
        logits = model(batch[:, :-1])
    return tk.cross_entropy(logits.float(), batch[:, 1:].contiguous())


@torch.no_grad()
def evaluate(name: str, model: GPT2, held_out: list[Tensor]) -> float:
    """Prints and returns the loss on the held-out text, in nats a token."""
    model.eval()
    total = sum(float(loss_of(model, batch)) * len(batch) for batch in held_out)
    loss = total / sum(map(len, held_out))
    print(f"{name:30}{loss:8.3f}{math.exp(loss):12.1f}", flush=True)
    return loss


def optimize(
    parameters: Iterable[nn.Parameter], steps: int, rate: float, loss_at: Callable[[int], Tensor]
) -> None:
    """AdamW on `loss_at(step)`: a warmup, then the rate falls to nothing as a cosine."""
    parameters = list(parameters)
    for parameter in parameters:
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, total_steps=steps, pct_start=0.1
    )
    for step in range(steps):
        loss_at(step).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    for parameter in parameters:
        parameter.requires_grad_(False)


def transfer(
    model: GPT2, layers: list[Hedgehog], batches: data.Batches, options: argparse.Namespace
) -> list[list[float]]:
    """Stage 1: maps and weights alone learn to give what softmax gives; errors, of each layer.

    The residual stream is the teacher's all the way: each layer learns by itself, from what it
    would have seen there.
    """
    errors: list[list[float]] = [[] for _ in layers]

    def loss_at(step: int) -> Tensor:
        with autocast(options.device):
            model.transformer(batches[step][:, :-1], None)
        for of_layer, layer in zip(errors, layers, strict=True):
            of_layer.append(float(layer.error.detach()))
        return sum(layer.error for layer in layers)

    for layer in layers:
        layer.taught = True
    parameters = [p for layer in layers for p in layer.parameters()]
    optimize(parameters, options.transfer_steps, options.transfer_lr, loss_at)
    for layer in layers:
        layer.taught = False
    return errors


def finetune(
    model: GPT2, teacher: GPT2, batches: data.Batches, options: argparse.Namespace
) -> list[float]:
    """Stage 2: the next token, by adapters of the attention's matrices or by all weights.

    Returns how far each step's loss was above the teacher's on the same text: batches differ by
    more than the two do.
    """
    above: list[float] = []

    def loss_at(step: int) -> Tensor:
        batch = batches[options.transfer_steps + step]
        loss = loss_of(model, batch)
        above.append(float(loss.detach() - loss_of(teacher, batch)))
        return loss

    trained = add_adapters(model, options.rank) if options.rank else model.parameters()
    optimize(trained, options.finetune_steps, options.finetune_lr, loss_at)
    merge_adapters(model)
    return above


def continued(model: GPT2, tokenizer, options: argparse.Namespace) -> str:
    """The prompt goes through the model at once, the rest token by token by `step`."""
    prompt, cache = tokenizer.encode(options.prompt).ids, Cache(model.config.n_layer)
    stream = generate(model, prompt, 0.6, 40, seed=1, cache=cache)
    tokens = [token for _, (token, _) in zip(range(options.tokens), stream, strict=False)]
    print(f"\nstate after {len(prompt) + len(tokens) - 1} tokens: {cache.nbytes():,} bytes")
    return options.prompt + tokenizer.decode(tokens)


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="lolcats",
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    whole, steps, rate = number(int, 1), number(int, 2), number(float, 0.0)
    group = parser.add_argument_group("teacher and text")
    group.add_argument("--checkpoint", type=Path, default=DEFAULT_CHECKPOINT, help="a GPT-2")
    group.add_argument("--data", help="file, folder or glob; None is Python's standard library")
    length = number(int, WINDOW + 1)
    group.add_argument("--length", type=length, help="tokens; None: 256 on a CPU, else all")
    group.add_argument("--batch", type=whole, default=2, help="sequences of a step")
    group.add_argument("--eval-tokens", type=whole, default=1 << 13, help="of the held-out text")
    group = parser.add_argument_group("stages")
    group.add_argument("--features", type=whole, default=64, help="of a map, each with both signs")
    group.add_argument("--transfer-steps", type=steps, default=30, help="of stage 1")
    group.add_argument("--transfer-lr", type=rate, default=1e-2, help="its highest rate")
    group.add_argument("--finetune-steps", type=steps, default=20, help="of stage 2")
    group.add_argument("--finetune-lr", type=rate, default=1e-3, help="its highest rate")
    group.add_argument("--rank", type=number(int, 0, 512), default=8, help="0: all weights learn")
    group = parser.add_argument_group("run")
    group.add_argument("--prompt", type=text, default="def read_lines(path):", help="to continue")
    group.add_argument("--tokens", type=whole, default=60, help="of the continuation")
    group.add_argument("--out", type=Path, default=Path("runs/lolcats"), help="for lolcats.png")
    group.add_argument("--device", type=device, default="auto", help="auto, cpu, cuda, cuda:1 …")
    options = parser.parse_args(arguments)
    if not options.prompt:
        parser.error("--prompt is empty")
    return options


def run(options: argparse.Namespace) -> bool:
    """Both stages; whether each has made the model better."""
    torch.manual_seed(0)
    teacher, model = (
        checkpoint.load(options.checkpoint, device=options.device).requires_grad_(False)
        for _ in range(2)
    )
    tokenizer = checkpoint.load_tokenizer(options.checkpoint, model.config)
    positions = model.config.n_positions
    if positions <= WINDOW:
        raise checkpoint.CheckpointError(
            f"{options.checkpoint}: has {positions} positions; the window of Hedgehog's attention "
            f"takes {WINDOW}, and beyond them begins what its features could learn"
        )
    length = min(options.length or (256 if options.device.type == "cpu" else positions), positions)
    texts = data.split(data.read_documents(options.data), HELD_OUT)
    train, held_out = (data.encode(tokenizer, part).to(options.device) for part in texts)
    batches = data.Batches(train, options.batch, length, seed=0)
    enough = max(options.eval_tokens, length + 1)
    held_out = data.evaluation_batches(held_out[:enough], options.batch, length)

    print(f"{'held-out text':30}{'loss':>8}{'perplexity':>12}")
    best = evaluate("teacher, softmax", teacher, held_out)
    layers = exchange(model, options.features)
    swapped = evaluate("Hedgehog, random features", model, held_out)
    start = time.perf_counter()
    errors = transfer(model, layers, batches, options)
    transferred = evaluate("… attention transferred", model, held_out)
    above = finetune(model, teacher, batches, options)
    tuned = evaluate("… and fine-tuned", model, held_out)
    seconds = time.perf_counter() - start

    count = sum(p.numel() for layer in layers for p in layer.parameters())
    print(f"\n{count:,} weights of features, {seconds:.0f} s on {options.device}")
    q = batches[0].new_empty(1, length, model.config.n_head, layers[0].learned.head_dim)
    print(served(layers[0], q))
    print(continued(model.eval(), tokenizer, options))
    first = {f"layer {i}": (range(1, len(e) + 1), e) for i, e in enumerate(errors)}
    second = {"of each step": (range(1, len(above) + 1), above)}
    levels = {"held out, before": transferred - best, "held out, after": tuned - best}
    panels = [
        Panel("step of stage 1", "relative squared error of attention", first),
        Panel("step of stage 2", "loss above the teacher's (nats)", second, levels),
    ]
    png = options.out / "lolcats.png"
    print(draw(png, panels) or f"\ndrawn: {png}")
    return tuned < transferred < swapped


def served(layer: Hedgehog, q: Tensor) -> str:
    """Who computes the attention of a layer, and why."""
    dtype = torch.bfloat16 if q.is_cuda else torch.float32
    q, maps = q.to(dtype), [m.to(dtype) for m in (layer.learned.q_map, layer.learned.k_map)]
    alpha, beta = layer.learned.weights()
    found = tk.explain("hedgehog_attention", q, q, q, *maps, alpha=alpha, beta=beta)
    return f"hedgehog_attention: {found.backend} ({found.reason})"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = parse_options(arguments)
    try:
        return 0 if run(options) else 1
    except (checkpoint.CheckpointError, data.DataError) as error:
        print(f"lolcats: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
