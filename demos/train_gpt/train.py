"""Trains a GPT-2-shaped language model on text, through thunderkittens ops.

    python -m demos.train_gpt --steps 2000 --out runs/python
    python -m demos.train_gpt --parallel fsdp --ranks 2 --dropout 0 --out runs/two

AdamW with decay groups, warmup and cosine, gradient clipping and accumulation; on a GPU bfloat16
with float32 master weights, on a CPU float32. The folder --out gets

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
import parallel
import ranks
import state
import torch
from models import checkpoint, data
from models.command_line import picture
from models.gpt2 import GPT2, TRAINING_OPS, Config, generate
from options import RUN_ONLY, parse_options
from rich.console import Console
from tokenizers import Tokenizer
from torch import Tensor, nn

import thunderkittens
from thunderkittens.optim import AdamW

HELD_OUT = 0.05  # the share of the text that is evaluated on
console = Console(highlight=False, soft_wrap=True, quiet=not ranks.speaks())


def learning_rate(step: int, options: argparse.Namespace) -> float:
    """Linear warmup, then a cosine from the highest rate to a tenth of it."""
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    progress = (step - options.warmup) / max(1, options.steps - options.warmup)
    return options.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, progress))))


def loss_of(
    model: nn.Module, tokens: Tensor, targets: Tensor, positions: Tensor | None = None
) -> Tensor:
    """Mean cross entropy of the next token; tokens and targets: [B, length]."""
    logits = model(tokens, positions=positions)
    return thunderkittens.cross_entropy(logits, targets, inplace=True)


def dtype_of(device: torch.device) -> torch.dtype:
    """What the model computes in: on a GPU bfloat16, whose float32 weights the optimizer has."""
    return torch.float32 if device.type == "cpu" else torch.bfloat16


class Run:
    """A training run: the model, its optimizer, its text, and where it stands."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.device = options, options.device
        self.dtype = dtype_of(self.device)
        self.team = parallel.team_of(options)
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
            self.model = checkpoint.load(folder, self.dtype, self.device, TRAINING_OPS)
        else:
            if self.team.rank == 0:
                (options.out / "log.jsonl").unlink(missing_ok=True)
            self.tokenizer = parallel.tokenizer_of_all(self.team, train, options.vocab)
            config = new_config(options, self.tokenizer)
            self.model = GPT2(config, TRAINING_OPS).to(self.device)
            self.model.initialize()
            self.model.to(self.dtype)
        self.model.requires_grad_(True)
        self.trained = self.team.prepare(self.model)
        self.optimizer = make_optimizer(self.model, options)
        train, held_out = (data.encode(self.tokenizer, texts) for texts in (train, held_out))
        self.text = hashlib.sha256(train.numpy().tobytes()).hexdigest()
        self.tokens = train.numel()
        self.batches = data.Batches(
            train.to(self.device), options.batch, options.length, options.seed
        )
        held_out = held_out[: max(options.eval_tokens, options.length + 1)].to(self.device)
        self.held_out = data.evaluation_batches(held_out, options.micro_batch, options.length)
        if options.compile:
            self.trained = self.compiled()
        if folder:
            self.restore(folder)
        size = sum(parameter.numel() for parameter in self.model.parameters())
        console.print(
            f"{size / 1e6:.2f} M parameters on {self.device}; {len(documents)} documents, "
            f"{self.tokens / 1e6:.2f} M tokens to train on, "
            f"{self.batches.per_epoch / options.batch:.1f} steps per epoch"
        )

    def compiled(self) -> nn.Module:
        """The model through torch.compile, or as it is where that does not work.

        The loss stays outside, where its gradient takes the place of the logits: a compiled graph
        would copy them.
        """
        model = torch.compile(self.trained)
        try:
            parts = self.team.parts(self.batches[0][: self.options.micro_batch])
            loss_of(model.train(), *parts).backward()
        except Exception as error:  # a missing C compiler, an unsupported GPU, …: slower, no more
            console.print(f"torch.compile: {str(error).splitlines()[0]}; going on without it")
            model = self.trained
        self.optimizer.zero_grad()
        return model

    def train_step(self) -> None:
        """One step of the optimizer; this rank's loss waits on the device until `flush`."""
        options, total = self.options, torch.zeros((), device=self.device)
        self.team.begin_step(options.seed, self.step)
        rate = learning_rate(self.step, options)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        batches = self.batches[self.step].split(options.micro_batch)
        for i, batch in enumerate(batches):
            with self.team.accumulates(self.trained, i + 1 == len(batches)):
                loss = loss_of(self.trained, *self.team.parts(batch))
                loss = loss * (options.micro_batch / options.batch)
                loss.backward()
            total += self.team.whole("loss", loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.losses.append(total)

    def flush(self) -> float:
        """Writes the waiting losses to the log; returns their mean."""
        waiting = torch.stack(self.losses) if self.losses else torch.zeros(0, device=self.device)
        losses = (self.team.total(waiting) / self.team.ranks).tolist()
        first = self.step - len(losses) + 1
        self.log(*({"step": first + i, "loss": loss} for i, loss in enumerate(losses)))
        self.losses = []
        self.history += losses
        return sum(losses) / max(1, len(losses))

    def log(self, *lines: dict) -> None:
        """Appends to log.jsonl."""
        if self.team.rank > 0:
            return
        self.options.out.mkdir(parents=True, exist_ok=True)
        with (self.options.out / "log.jsonl").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    @torch.no_grad()
    def evaluate(self) -> float:
        """The loss on the held-out text; the best model so far is kept."""
        model = self.team.plain(self.model)
        loss = held_out_loss(model, self.held_out, self.team)
        self.model.train()
        self.log({"step": self.step, "evaluation_loss": loss})
        if loss < self.best_loss:
            self.best_loss = loss
            if self.team.rank == 0:
                checkpoint.save(self.options.out / "best", model, self.tokenizer)
        return loss

    def sample(self, count: int = 96) -> str:
        """What the model makes of --prompt, for rank 0 to print."""
        model = self.team.plain(self.model).eval()
        if self.team.rank > 0:
            return ""
        end = self.tokenizer.token_to_id(checkpoint.END_OF_TEXT)
        prompt = self.tokenizer.encode(self.options.prompt).ids or [end]
        stream = generate(model, prompt, temperature=0.7, top_k=50, seed=self.step)
        tokens = [token for _, (token, _) in zip(range(count), stream, strict=False)]
        self.model.train()
        return self.options.prompt + self.tokenizer.decode(tokens)

    def save(self) -> None:
        """Writes step-…/, from which `restore` goes on."""
        self.flush()
        kept = {key: value for key, value in vars(self.options).items() if key not in RUN_ONLY}
        facts = {"step": self.step, "best_loss": self.best_loss, "text": self.text, "options": kept}
        state.save(self.options.out, self.model, self.tokenizer, self.optimizer, facts, self.team)

    def restore(self, folder: Path) -> None:
        """Sets what `save` wrote: the next loss is that of a run that was never stopped."""
        facts = state.restore(folder, self.model, self.optimizer, self.team)
        if facts["text"] != self.text:
            raise checkpoint.CheckpointError(f"{folder}: --data is not the text of this run")
        self.step, self.best_loss = facts["step"], facts["best_loss"]
        if self.team.rank > 0:
            return
        log = self.options.out / "log.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        kept = [f"{line}\n" for line in lines if step_of(line) <= self.step]
        checkpoint.write(log, lambda scratch: scratch.write_text("".join(kept)))
        self.history = curve.read(log)["loss"][1]

    def export(self, folder: Path) -> None:
        """Writes the best model in 16 bit, reads it back and evaluates it; of rank 0."""
        best = self.options.out / "best"
        model = checkpoint.load(best)
        checkpoint.save(folder, model, self.tokenizer, getattr(torch, self.options.export_dtype))
        model = checkpoint.load(folder, self.dtype, self.device, TRAINING_OPS)
        loss = held_out_loss(model, self.held_out, parallel.Team())
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
    # In 16 bits the fast products of the classifier want rows at multiples of 16 bytes.
    rounded = -(-tokenizer.get_vocab_size() // 8) * 8
    return Config(
        vocab_size=rounded,
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
    return AdamW(
        groups, lr=options.lr, betas=(0.9, 0.95), max_norm=options.clip, master_weights=True
    )


@torch.no_grad()
def held_out_loss(model: GPT2, batches: list[Tensor], team: parallel.Team) -> float:
    """Mean loss over batches of held-out text, of which each rank takes some."""
    model.eval()
    total = torch.zeros((), device=batches[0].device)
    for batch in batches[team.rank :: team.ranks]:
        total += loss_of(model, batch[:, :-1], batch[:, 1:]) * len(batch)
    model.train()
    return float(team.total(total)) / sum(map(len, batches))


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
        stops = bool(stop)
        while run.step < options.steps and not stops:
            run.train_step()
            stops, late = run.team.agree(bool(stop), time.monotonic() > deadline)
            last = run.step == options.steps or late
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
    return stops


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    try:
        options = parse_options(arguments)
        if options.parallel and not ranks.is_one():
            return ranks.run_all(options.ranks, sys.argv[1:] if arguments is None else arguments)
        console.record = bool(options.svg)
        run = Run(options)
        stopped = train(run)
        if run.team.rank == 0:
            conclude(run)
    except (checkpoint.CheckpointError, data.DataError) as error:
        return fail(str(error), 2)
    except (FloatingPointError, OSError) as error:  # the loss is no number; the disk is full, …
        return fail(str(error), 1)
    except KeyboardInterrupt:
        return fail("interrupted before the first step; nothing to save", 130)
    except RuntimeError as error:
        if not ranks.is_of_another(error):
            raise
        return fail("another rank has ended", ranks.GONE)
    return 130 if stopped else 0


def fail(why: str, code: int) -> int:
    """Says why, in one sentence, if this process is the one that speaks; returns the exit code."""
    if ranks.speaks() and code != ranks.GONE:
        print(f"train: {why}", file=sys.stderr)
    return code


def conclude(run: Run) -> None:
    """What is made of a run at its end."""
    options = run.options
    missing = curve.draw(options.out / "log.jsonl", options.out / "loss.png")
    if options.export:
        run.export(options.export)
    console.print(f"saved in {options.out}; best evaluation loss {run.best_loss:.4f}")
    console.print(f"no loss.png: {missing}" if missing else f"drawn: {options.out / 'loss.png'}")
    if options.svg:
        picture(console, options.svg, "python -m demos.train_gpt")


if __name__ == "__main__":
    ranks.leave(main())
