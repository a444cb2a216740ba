"""Trains a GPT-2-shaped language model on text, through thunderkittens ops.

    python -m demos.train_gpt --steps 2000 --out runs/python

AdamW with decay groups, warmup and cosine, gradient clipping and accumulation; bfloat16 autocast on
a GPU, float32 on a CPU. The folder --out gets

    step-000500/   the newest state: the model, and what --resume needs to go on exactly
    best/          the model with the lowest evaluation loss so far
    log.jsonl      the loss of every step and of every evaluation
    loss.png       the curve of both
"""

import argparse
import hashlib
import json
import math
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import curve
import state
import torch
from models import checkpoint, data
from models.command_line import device, number, picture, text
from models.gpt2 import GPT2, Config, generate
from rich.console import Console
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from thunderkittens.optim import AdamW

HELD_OUT = 0.05  # the share of the text that is evaluated on
RUN_ONLY = ("out", "resume", "device", "minutes", "export", "export_dtype", "compile", "svg")
console = Console(highlight=False, soft_wrap=True)


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; with --resume, what it leaves out is as it was saved."""
    parser = argparse.ArgumentParser(prog="train", description=__doc__.split("\n")[0])
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
    group.add_argument("--device", type=device, default="auto", help="auto, cpu, cuda, cuda:1 …")
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
    return options


def learning_rate(step: int, options: argparse.Namespace) -> float:
    """Linear warmup, then a cosine from the highest rate to a tenth of it."""
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    progress = (step - options.warmup) / max(1, options.steps - options.warmup)
    return options.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, progress))))


def loss_of(model: GPT2, batch: Tensor) -> Tensor:
    """Mean cross entropy of the next token; batch: [B, length + 1]."""
    logits = model(batch[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


class Run:
    """A training run: the model, its optimizer, its text, and where it stands."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.device = options, options.device
        torch.manual_seed(options.seed)
        self.step, self.best_loss, self.losses = 0, math.inf, []
        self.history: list[float] = []  # of all steps, but those that wait in `losses`
        documents = data.read_documents(options.data)
        train, held_out = data.split(documents, HELD_OUT)
        folder = state.newest(options.out) if options.resume else None
        if folder:
            config = checkpoint.read_config(folder)
            if options.length > config.n_positions:
                raise checkpoint.CheckpointError(
                    f"{folder}: has {config.n_positions} positions, --length is {options.length}"
                )
            self.tokenizer = checkpoint.load_tokenizer(folder, config)
            self.model = checkpoint.load(folder, device=self.device)
        else:
            (options.out / "log.jsonl").unlink(missing_ok=True)
            self.tokenizer = data.train_tokenizer(train, options.vocab)
            self.model = GPT2(new_config(options, self.tokenizer)).to(self.device)
            self.model.initialize()
        self.model.requires_grad_(True)
        self.optimizer = make_optimizer(self.model, options)
        train, held_out = (data.encode(self.tokenizer, texts) for texts in (train, held_out))
        self.text = hashlib.sha256(train.numpy().tobytes()).hexdigest()
        self.tokens = train.numel()
        self.batches = data.Batches(
            train.to(self.device), options.batch, options.length, options.seed
        )
        held_out = held_out[: max(options.eval_tokens, options.length + 1)].to(self.device)
        self.held_out = data.evaluation_batches(held_out, options.micro_batch, options.length)
        self.loss_of = self.compiled() if options.compile else loss_of
        if folder:
            self.restore(folder)
        size = sum(parameter.numel() for parameter in self.model.parameters())
        console.print(
            f"{size / 1e6:.2f} M parameters on {self.device}; {len(documents)} documents, "
            f"{self.tokens / 1e6:.2f} M tokens to train on, "
            f"{self.batches.per_epoch / options.batch:.1f} steps per epoch"
        )

    def autocast(self) -> torch.autocast:
        """bfloat16 on a GPU, nothing on a CPU."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type != "cpu")

    def compiled(self):
        """`loss_of` through torch.compile, or as it is where that does not work."""
        function = torch.compile(loss_of)
        try:
            with self.autocast():
                function(self.model.train(), self.batches[0][: self.options.micro_batch]).backward()
        except Exception as error:  # a missing C compiler, an unsupported GPU, …: slower, no more
            console.print(f"torch.compile: {str(error).splitlines()[0]}; going on without it")
            function = loss_of
        self.optimizer.zero_grad()
        return function

    def train_step(self) -> None:
        """One step of the optimizer; its loss waits on the device until `flush`."""
        options, total = self.options, torch.zeros((), device=self.device)
        rate = learning_rate(self.step, options)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for batch in self.batches[self.step].split(options.micro_batch):
            with self.autocast():
                loss = self.loss_of(self.model, batch) * (options.micro_batch / options.batch)
            loss.backward()
            total += loss.detach()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.losses.append(total)

    def flush(self) -> float:
        """Writes the waiting losses to the log; returns their mean."""
        losses = torch.stack(self.losses).tolist() if self.losses else []
        first = self.step - len(losses) + 1
        self.log(*({"step": first + i, "loss": loss} for i, loss in enumerate(losses)))
        self.losses = []
        self.history += losses
        return sum(losses) / max(1, len(losses))

    def log(self, *lines: dict) -> None:
        """Appends to log.jsonl."""
        self.options.out.mkdir(parents=True, exist_ok=True)
        with (self.options.out / "log.jsonl").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    @torch.no_grad()
    def evaluate(self) -> float:
        """The loss on the held-out text; the best model so far is kept."""
        loss = held_out_loss(self.model, self.held_out, self.autocast())
        self.log({"step": self.step, "evaluation_loss": loss})
        if loss < self.best_loss:
            self.best_loss = loss
            checkpoint.save(self.options.out / "best", self.model, self.tokenizer)
        return loss

    def sample(self, count: int = 96) -> str:
        """What the model makes of --prompt."""
        self.model.eval()
        end = self.tokenizer.token_to_id(checkpoint.END_OF_TEXT)
        prompt = self.tokenizer.encode(self.options.prompt).ids or [end]
        stream = generate(self.model, prompt, temperature=0.7, top_k=50, seed=self.step)
        tokens = [token for _, (token, _) in zip(range(count), stream, strict=False)]
        self.model.train()
        return self.options.prompt + self.tokenizer.decode(tokens)

    def save(self) -> None:
        """Writes step-…/, from which `restore` goes on."""
        self.flush()
        kept = {key: value for key, value in vars(self.options).items() if key not in RUN_ONLY}
        facts = {"step": self.step, "best_loss": self.best_loss, "text": self.text, "options": kept}
        state.save(self.options.out, self.model, self.tokenizer, self.optimizer, facts)

    def restore(self, folder: Path) -> None:
        """Sets what `save` wrote: the next loss is that of a run that was never stopped."""
        facts = state.restore(folder, self.model, self.optimizer)
        if facts["text"] != self.text:
            raise checkpoint.CheckpointError(f"{folder}: --data is not the text of this run")
        self.step, self.best_loss = facts["step"], facts["best_loss"]
        log = self.options.out / "log.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        kept = [f"{line}\n" for line in lines if step_of(line) <= self.step]
        checkpoint.write(log, lambda scratch: scratch.write_text("".join(kept)))
        self.history = curve.read(log)["loss"][1]

    def export(self, folder: Path) -> None:
        """Writes the best model in 16 bit, reads it back and evaluates it."""
        best = self.options.out / "best"
        model = checkpoint.load(best)
        checkpoint.save(folder, model, self.tokenizer, getattr(torch, self.options.export_dtype))
        model = checkpoint.load(folder, device=self.device)
        loss = held_out_loss(model, self.held_out, self.autocast())
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        console.print(f"{folder}: {size / 1e6:.2f} MB, evaluation loss {loss:.4f}")


def step_of(line: str) -> float:
    """The step that a line of the log is about; of a line that was cut off: none."""
    try:
        return json.loads(line)["step"]
    except ValueError:
        return math.inf


def new_config(options: argparse.Namespace, tokenizer: Tokenizer) -> Config:
    """The sizes of a new model."""
    return Config(
        vocab_size=tokenizer.get_vocab_size(),
        n_positions=options.length,
        n_embd=options.width,
        n_layer=options.layers,
        n_head=options.heads,
        embd_pdrop=options.dropout,
        resid_pdrop=options.dropout,
    )


def make_optimizer(model: GPT2, options: argparse.Namespace) -> AdamW:
    """AdamW, which clips the gradients itself; weight decay on matrices alone."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": options.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=options.lr, betas=(0.9, 0.95), max_norm=options.clip)


@torch.no_grad()
def held_out_loss(model: GPT2, batches: list[Tensor], autocast: torch.autocast) -> float:
    """Mean loss over batches of held-out text."""
    model.eval()
    with autocast:
        total = sum(loss_of(model, batch) * len(batch) for batch in batches)
    model.train()
    return float(total) / sum(map(len, batches))


def train(run: Run) -> bool:
    """Steps until the end, --minutes or SIGINT; returns whether SIGINT stopped it."""
    options, stop = run.options, []
    started = signal.signal(signal.SIGINT, lambda *_: stop.append("SIGINT"))
    deadline = time.monotonic() + 60 * options.minutes
    live = console.is_terminal
    with curve.LiveCurve(run.history, console, disable=not live) as progress:
        task = progress.add_task("compiling" if options.compile else "", total=options.steps)
        mark, mark_step, seconds = time.monotonic(), run.step, 0.0
        run.model.train()
        while run.step < options.steps and not stop:
            run.train_step()
            last = run.step == options.steps or time.monotonic() > deadline
            evaluates = run.step % options.eval_every == 0 or last
            if run.step % options.log_every == 0 or evaluates:
                loss = run.flush()
                if not math.isfinite(loss):
                    raise FloatingPointError(f"the loss is {loss} at step {run.step}")
                seconds = (time.monotonic() - mark) / (run.step - mark_step)
                rate = options.batch * options.length / seconds
                line = f"loss {loss:.4f}  {rate:,.0f} tokens/s"
                progress.update(task, completed=run.step, description=line)
                if not live:
                    left = round(seconds * (options.steps - run.step))
                    console.print(f"step {run.step}/{options.steps}  {line}  {left} s left")
            if evaluates:
                loss = run.evaluate()
                console.print(f"step {run.step}: evaluation loss {loss:.4f}")
                console.print(run.sample(), style="dim", markup=False)
                run.save()
            if run.step % options.log_every == 0 or evaluates:
                mark, mark_step = time.monotonic(), run.step
            if last:
                break
    if not live:  # where it stays on the screen
        console.print(curve.chart(run.history))
    signal.signal(signal.SIGINT, started)
    run.save()
    return bool(stop)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    try:
        options = parse_options(arguments)
        console.record = bool(options.svg)
        run = Run(options)
        stopped = train(run)
        missing = curve.draw(options.out / "log.jsonl", options.out / "loss.png")
        if options.export:
            run.export(options.export)
    except (checkpoint.CheckpointError, data.DataError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 2
    except (FloatingPointError, OSError) as error:  # the loss is no number; the disk is full, …
        print(f"train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("train: interrupted before the first step; nothing to save", file=sys.stderr)
        return 130
    console.print(f"saved in {options.out}; best evaluation loss {run.best_loss:.4f}")
    console.print(f"no loss.png: {missing}" if missing else f"drawn: {options.out / 'loss.png'}")
    if options.svg:
        picture(console, options.svg, "python -m demos.train_gpt")
    return 130 if stopped else 0


if __name__ == "__main__":
    sys.exit(main())
