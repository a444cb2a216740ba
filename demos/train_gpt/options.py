"""The command line of the training program."""

import argparse
import math
import os
from pathlib import Path

import parallel
import ranks
import state
from models.command_line import number, text

# What a saved run does not go on with.
RUN_ONLY = ("out", "resume", "device", "minutes", "export", "export_dtype", "compile", "svg")
RUN_ONLY += ("parallel", "ranks")


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; with --resume, what it leaves out is as it was saved."""
    parser = argparse.ArgumentParser(prog="train", description="Trains a GPT-2 on text.")
    whole, real = number(int, 1), number(float, 0.0)
    group = parser.add_argument_group("text and model")
    group.add_argument("--data", help="text file, folder or glob (default: the standard library)")
    group.add_argument("--vocab", type=number(int, 257), default=4096, help="tokens to learn")
    group.add_argument("--layers", type=whole, default=4)
    group.add_argument("--heads", type=whole, default=4)
    group.add_argument("--width", type=whole, default=256)
    group.add_argument("--length", type=whole, default=512, help="tokens per sequence")
    group = parser.add_argument_group("recipe")
    group.add_argument("--steps", type=whole, default=2000)
    group.add_argument("--batch", type=whole, default=64, help="sequences per step")
    group.add_argument("--micro-batch", type=whole, help="sequences at once (default: --batch)")
    group.add_argument("--lr", type=real, default=2e-3, help="the highest learning rate")
    group.add_argument("--warmup", type=whole, default=100, help="steps")
    group.add_argument("--weight-decay", type=real, default=0.1)
    group.add_argument("--dropout", type=number(float, 0.0, 0.9), default=0.1)
    group.add_argument("--clip", type=real, default=1.0, help="largest norm of the gradient")
    group.add_argument("--seed", type=number(int, 0, 1 << 40), default=0)
    group = parser.add_argument_group("run")
    group.add_argument("--out", type=Path, default=Path("runs/train_gpt"))
    group.add_argument("--resume", action="store_true", help="go on with the run in --out")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 …")
    group.add_argument("--parallel", choices=parallel.WAYS, help="over several ranks; README.md")
    group.add_argument("--ranks", type=whole, default=1, help="processes, each with a GPU")
    group.add_argument("--compile", action="store_true", help="through torch.compile")
    group.add_argument("--minutes", type=real, default=math.inf, help="save and stop after these")
    group.add_argument("--log-every", type=whole, default=20, help="steps")
    group.add_argument("--eval-every", type=whole, default=100, help="steps; saves as well")
    group.add_argument("--eval-tokens", type=whole, default=1 << 17)
    group.add_argument("--prompt", type=text, default="def ", help="of the sample texts")
    group.add_argument("--export", type=Path, help="at the end, the best model goes here …")
    group.add_argument("--export-dtype", default="float16", choices=("float16", "bfloat16"))
    group.add_argument("--svg", type=Path, help="a file: what is printed, as a picture")
    options = parser.parse_args(arguments)
    if options.resume:
        saved = state.read_facts(state.newest(options.out))["options"]
        # As strings, so that they are checked like those of the command line.
        parser.set_defaults(
            **{name: value if value is None else str(value) for name, value in saved.items()}
        )
        options = parser.parse_args(arguments)
    elif list(options.out.glob("step-*")):
        parser.error(f"--out {options.out} holds a run: --resume it, or choose another folder")
    if options.width % options.heads:
        parser.error(f"--width {options.width} is not divisible by --heads {options.heads}")
    options.micro_batch = min(options.micro_batch or options.batch, options.batch)
    if options.batch % options.micro_batch:
        parser.error(f"--batch {options.batch} is not divisible by --micro-batch")
    if ranks.is_one():
        options.ranks = int(os.environ["WORLD_SIZE"])
    if options.ranks > 1 and not options.parallel:
        parser.error(f"--ranks {options.ranks} need --parallel: {', '.join(parallel.WAYS)}")
    if wrong := parallel.why_not(options):
        parser.error(wrong)
    try:
        options.device = parallel.device_of(options)
    except (argparse.ArgumentTypeError, ValueError) as error:
        parser.error(f"argument --device: {error}")
    return options
