"""The trainer without Python and torch: it learns as PyTorch does, resumes bit for bit, and says
what is wrong."""

import math
import re
import signal
import struct
import subprocess

import pytest
import torch
from models import checkpoint
from models.gpt2 import TORCH_OPS
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as word_models
from torch.nn.functional import cross_entropy
from trainers import (
    CONFIG,
    LENGTH,
    RECIPE,
    SMALL,
    VOCABULARY,
    build,
    column,
    make_checkpoint,
    outcome,
    read_tokens,
    refused,
    rows,
    succeeded,
    write_tokens,
)

from build_tools import cuda, environment, settings, train
from build_tools.settings import BuildError
from demos.train_gpt2 import prepare

# ---- Ten steps beside PyTorch -------------------------------------------------------------------


# β1, β2, weight decay and the largest norm: the defaults, and others.
@pytest.mark.parametrize("recipe", [(0.9, 0.95, 0.1, 1.0), (0.8, 0.9, 0.3, 0.25)], ids=str)
def test_ten_steps_are_pytorchs_and_learn_the_batch_by_heart(run_trainer, tmp_path, recipe):
    """Every update sees all four sequences: their order does not matter to a mean.

    A gradient is off by what test_train_gpt2_model.py allows, and ten of them add up as a random
    walk. AdamW divides by their size, so a relative error stays one, but for gradients that are
    small beside epsilon, which is large here. A loss is flat in that: it has its sum's roundings.
    """
    error = math.sqrt(10) * 2**-24 * math.sqrt(3 * (10 * CONFIG.n_layer + 1) * 4 * CONFIG.n_embd)
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, VOCABULARY, (4 * LENGTH + 1,), generator=generator)
    path, out = write_tokens(tmp_path / "train.bin", tokens), tmp_path / "out"
    model = make_checkpoint(tmp_path / "init").double()
    options = "--batch 2 --steps 10 --lr 0.02 --warmup 2 --epsilon 1e-4 --dtype float32".split()
    beta1, beta2, decay, clip = recipe
    if recipe != (0.9, 0.95, 0.1, 1.0):
        options += ["--beta1", beta1, "--beta2", beta2, "--weight-decay", decay, "--clip", clip]
    sizes = ["--length", LENGTH, "--total-batch", 4 * LENGTH, "--init", tmp_path / "init"]
    evaluation = ["--eval", path, "--eval-every", 10, "--eval-batches", 2]
    succeeded(run_trainer("--train", path, "--out", out, *options, *sizes, *evaluation))

    first = {name: value.clone() for name, value in model.state_dict().items()}
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(beta1, beta2), eps=1e-4)
    batch = tokens.unfold(0, LENGTH + 1, LENGTH)
    losses = [float(loss) for loss in column(out, "loss")]
    assert len(losses) == 10
    for step in range(10):
        rate = 0.02 * ((step + 1) / 2 if step < 2 else cosine((step - 2) / 8))
        assert math.isclose(float(column(out, "lr")[step]), rate, rel_tol=1e-6)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        assert abs(losses[step] - loss.item()) < 2**-17, step
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        assert math.isclose(float(column(out, "norm")[step]), float(norm), rel_tol=error)
        optimizer.step()
    assert losses[-1] < 0.7 * losses[0]
    loss = cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    assert [abs(float(got) - loss.item()) < 2**-17 for got in column(out, "eval_loss")] == [True]
    for name, value in checkpoint.load(out / "step-00000010", ops=TORCH_OPS).state_dict().items():
        want = model.state_dict()[name]
        assert (value.double() - want).norm() < error * (want - first[name]).norm(), name


def cosine(progress: float) -> float:
    return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))


def test_schedules(run_trainer, tokens_file, tmp_path):
    shapes = {
        "linear": lambda done, step: 1 - done,
        "constant": lambda done, step: 1,
        "wsd": lambda done, step: 1 if step < 3 else 1 - math.sqrt((step - 3) / 3),
    }
    for shape, left in shapes.items():
        out = tmp_path / shape
        more = f"--steps 6 --warmup 2 --schedule {shape}".split()
        more += "--last-lr 0.25".split() if shape != "constant" else []
        more += "--decay-share 0.5".split() if shape == "wsd" else []
        succeeded(run_trainer("--train", tokens_file, "--out", out, *SMALL, *more))
        want = [0.005, 0.01]
        want += [0.01 * (0.25 + 0.75 * left((step - 2) / 4, step)) for step in range(2, 6)]
        got = [float(rate) for rate in column(out, "lr")]
        assert all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(got, want, strict=True))


def test_first_weights_are_gpt2s(run_trainer, tokens_file, tmp_path):
    """A learning rate of 0 leaves them. Of n normal values the deviation is known to 1 / √(2 n)."""
    models = []
    for seed in (1, 2):
        out = tmp_path / str(seed)
        more = f"--steps 1 --lr 0 --seed {seed} --layers 2".split()
        succeeded(run_trainer("--train", tokens_file, "--out", out, *SMALL, *more))
        models.append(checkpoint.load(out / "step-00000001", ops=TORCH_OPS))
    for name, parameter in models[0].named_parameters():
        value = parameter.detach()
        if value.dim() == 1:
            is_norms_weight = "ln_" in name and name.endswith("weight")
            assert (value == float(is_norms_weight)).all(), name
            continue
        want = 0.02 / (2.0 if name.endswith("c_proj.weight") else 1.0)
        uncertain = 5 * want / math.sqrt(2 * value.numel())
        assert abs(float(value.std()) - want) < uncertain, name
        assert abs(float(value.mean())) < 5 * want / math.sqrt(value.numel()), name
        assert not torch.equal(value, models[1].get_parameter(name))


def test_an_epoch_is_every_sequence_of_all_files_in_an_order_of_its_own(
    run_trainer, tokens_file, tmp_path
):
    """Weights that do not move give each of the eight sequences a loss of its own."""
    tokens, folder = read_tokens(tokens_file), tmp_path / "files"
    folder.mkdir()
    write_tokens(folder / "a.bin", tokens[: 5 * LENGTH + 1])
    write_tokens(folder / "b.bin", tokens[:LENGTH])  # too short for a sequence
    write_tokens(folder / "c.bin", tokens[5 * LENGTH :])
    more = "--steps 24 --lr 0 --batch 1".split()
    for path, out in ((tokens_file, tmp_path / "one"), (folder, tmp_path / "three")):
        succeeded(run_trainer("--train", path, "--out", out, *SMALL, *more))
    losses = column(tmp_path / "one", "loss")
    assert losses == column(tmp_path / "three", "loss")
    epochs = [losses[:8], losses[8:16], losses[16:]]
    assert len(set(losses)) == 8
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


# ---- The same bits ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recipe",
    ["--dtype float32", "--dtype bfloat16", "--dtype bfloat16 --stochastic-rounding"],
    ids=["float32", "bfloat16", "stochastic"],
)
def test_a_resumed_and_a_second_run_have_the_same_bits(run_trainer, tokens_file, tmp_path, recipe):
    """The second one's updates are recorded; of some steps there is none, for they are outliers."""
    more = [*SMALL, *recipe.split(), "--total-batch", 4 * LENGTH, "--eval", tokens_file]
    more += "--outlier-window 2 --skip-norm-z 0.5".split()
    more += "--eval-batches 2 --eval-every 2 --save-every 3 --steps 6 --warmup 2 --keep 9".split()
    whole, again, parts = (tmp_path / name for name in ("whole", "again", "parts"))
    text = succeeded(run_trainer("--train", tokens_file, "--out", whole, *more))
    assert "6 steps, in whose loop 0 allocations and 0 synchronisations" in text
    assert [row["step"] for row in rows(whole)] == ["1", "2", "2", "3", "4", "4", "5", "6", "6"]
    assert 0 < len(column(whole, "norm_z")) < 6 and {"0", "1"} == set(column(whole, "skipped"))
    again_options = ["--train", tokens_file, "--out", again, *more, "--graph"]
    text = succeeded(run_trainer(*again_options, KITTENS_SIM="random:7"))
    assert "6 steps, in whose loop 0 allocations and 0 synchronisations" in text
    assert outcome(again, 6) == outcome(whole, 6)

    whole.rename(parts)  # as if it had stopped behind its fifth step: the third is the last saved
    want = outcome(parts, 6)
    for path in (parts / "step-00000006").iterdir():
        path.unlink()
    (parts / "step-00000006").rename(parts / "step-00000006.partial")
    succeeded(run_trainer("--train", tokens_file, "--out", parts, *more, "--resume"))
    assert outcome(parts, 6) == want


def test_gelu_again_takes_less_memory(run_trainer, tokens_file, tmp_path):
    more = ["--train", tokens_file, *SMALL, *"--layers 4 --width 128 --batch 4 --steps 2".split()]
    more += ["--dtype", "bfloat16"]
    texts = [
        succeeded(run_trainer(*more, "--out", tmp_path / name, *options))
        for name, options in (("kept", []), ("again", ["--recompute"]))
    ]
    kept, again = (float(re.search(r"^activations +(\S+)", text, re.M)[1]) for text in texts)
    assert again < kept
    assert outcome(tmp_path / "kept", 2) == outcome(tmp_path / "again", 2)


def test_a_run_goes_on_only_with_the_same_recipe(run_trainer, tokens_file, tmp_path):
    out = tmp_path / "out"
    succeeded(run_trainer("--train", tokens_file, "--out", out, *SMALL, "--steps", 1))
    refused(run_trainer("--train", tokens_file, "--out", out, *SMALL), out, "holds a run")
    again = ["--train", tokens_file, "--out", out, *SMALL, "--resume"]
    refused(run_trainer(*again, "--seed", 4), "seed 0", "got 4")
    refused(run_trainer(*again, "--dtype", "bfloat16"), "dtype float32", "got bfloat16")
    refused(run_trainer(*again, "--steps", 0), "--steps must be at least", "has made, 1, got 0")


@pytest.mark.parametrize("batch", [1, 2, 4, 5])
def test_an_evaluation_counts_each_sequence_once(run_trainer, tokens_file, tmp_path, batch):
    """There are five: of batches of two the last has one, and fewer than are asked for."""
    tokens = read_tokens(tokens_file)[: 5 * LENGTH + 1]
    path, out = write_tokens(tmp_path / "eval.bin", tokens), tmp_path / "out"
    model = make_checkpoint(tmp_path / "init", deviation=0.3).double()
    more = ["--init", tmp_path / "init", "--steps", 0, "--batch", batch, "--out", out]
    for batches in (1000, 3):
        options = ["--eval", path, "--eval-batches", batches]
        succeeded(run_trainer("--train", tokens_file, *RECIPE, *more, *options))
        count = min(5, batches * batch)
        sequences = tokens.unfold(0, LENGTH + 1, LENGTH)[:count]
        with torch.no_grad():
            logits = model(sequences[:, :-1]).flatten(0, 1)
            want = cross_entropy(logits, sequences[:, 1:].flatten(), reduction="none")
        (got,) = column(out, "eval_loss")
        assert abs(float(got) - float(want.mean())) < 1e-5


def test_only_the_newest_checkpoints_stay(run_trainer, tokens_file, tmp_path):
    more = "--steps 5 --save-every 1 --keep 2".split()
    succeeded(run_trainer("--train", tokens_file, "--out", tmp_path / "out", *SMALL, *more))
    names = sorted(path.name for path in (tmp_path / "out").glob("step-*"))
    assert names == ["step-00000004", "step-00000005"]


def test_an_interrupt_saves(trainer, run_trainer, tokens_file, tmp_path):
    out = tmp_path / "out"
    arguments = [
        "--train",
        tokens_file,
        "--out",
        out,
        *SMALL,
        "--steps",
        100000,
        "--schedule",
        "constant",
    ]
    process = subprocess.Popen(
        [trainer, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not process.stdout.readline().startswith("step 2/"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "interrupted, and saved" in output
    step = int(next(iter(out.glob("step-*"))).name.removeprefix("step-"))
    assert step == len(column(out, "loss")) >= 2
    arguments[arguments.index(100000)] = step + 1
    succeeded(run_trainer(*arguments, "--resume"))
    assert (out / f"step-{step + 1:08d}").is_dir()


# ---- What others make of it ---------------------------------------------------------------------


def test_prepared_text_trains_a_checkpoint_that_others_load(run_trainer, text, tmp_path):
    """transformers and demos.generate read the folder as it is, and compute the same logits."""
    folder, out = tmp_path / "data", tmp_path / "out"
    assert prepare.main(["--data", str(text), "--out", str(folder), "--vocabulary", "280"]) == 0
    tokenizer = folder / "tokenizer.json"
    more = ["--tokenizer", tokenizer, "--vocabulary", 280, "--steps", 2, "--out", out]
    succeeded(run_trainer("--train", folder / "train.bin", *SMALL, *more))
    step = out / "step-00000002"
    model = checkpoint.load(step, ops=TORCH_OPS)
    assert checkpoint.load_tokenizer(step, model.config).get_vocab_size() == 280
    ids = read_tokens(folder / "eval.bin")
    assert checkpoint.load_tokenizer(step, model.config).decode(ids.tolist()) in text.read_text()
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(step, attn_implementation="eager").eval()
    tokens = ids[None, :LENGTH]
    with torch.no_grad():
        # Both are float32, of logits below 1: a few dozen roundings.
        assert (theirs(tokens).logits - model(tokens)).abs().max() < 1e-5
        assert theirs(tokens).logits.abs().max() > 0.05


def test_prepared_files_are_of_whole_documents(tmp_path):
    """None has its beginning in train.bin and its end in eval.bin."""
    texts = {
        f"{number}.txt": f"{number}: " + "some words " * (3 * number) for number in range(1, 9)
    }
    for name, content in texts.items():
        (tmp_path / name).write_text(content)
    folder = tmp_path / "data"
    data = str(tmp_path / "*.txt")
    assert prepare.main(["--data", data, "--out", str(folder), "--vocabulary", "280"]) == 0
    tokenizer = prepare.load_tokenizer(folder / "tokenizer.json")
    end = tokenizer.token_to_id(checkpoint.END_OF_TEXT)
    found = []
    for name in ("train", "eval"):
        ids = read_tokens(folder / f"{name}.bin").tolist()
        assert ids[0] == end
        starts = [at for at, token in enumerate(ids) if token == end]
        pairs = zip(starts, [*starts[1:], len(ids)], strict=True)
        found.append([tokenizer.decode(ids[first + 1 : last]) for first, last in pairs])
    assert sorted(found[0] + found[1]) == sorted(texts.values())
    assert found[1]


def test_numbers_of_tokens_may_have_gaps(tmp_path):
    """A file of uint16 would have other tokens; and what is printed is what --vocabulary needs."""
    words = {"a": 0, "b": 70000, checkpoint.END_OF_TEXT: 5}
    tokenizer = Tokenizer(word_models.WordLevel(words, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "sparse.json"))
    (tmp_path / "text.txt").write_text("b a " * 20)
    more = ["--data", str(tmp_path / "text.txt"), "--tokenizer", str(tmp_path / "sparse.json")]
    assert prepare.main([*more, "--out", str(tmp_path / "data")]) == 0
    content = (tmp_path / "data" / "train.bin").read_bytes()
    magic, version, count = struct.unpack("<3i", content[:12])
    assert (magic, version) == (20240801, 7)
    tokens = torch.frombuffer(bytearray(content[1024:]), dtype=torch.int32).tolist()
    assert len(tokens) == count and tokens[:5] == [5, 70000, 0, 70000, 0]


def test_wide_tokens_are_read_as_well(run_trainer, tokens_file, tmp_path):
    tokens = read_tokens(tokens_file)
    wide = write_tokens(tmp_path / "wide.bin", tokens, vocabulary=1 << 17)
    assert wide.stat().st_size == 1024 + 4 * len(tokens)
    outs = [tmp_path / name for name in ("narrow", "wide")]
    for path, out in zip((tokens_file, wide), outs, strict=True):
        succeeded(run_trainer("--train", path, "--out", out, *SMALL, "--steps", 2))
    assert column(outs[0], "loss") == column(outs[1], "loss")


# ---- For a GPU ----------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_graph_computes_the_same_bits(tokens_file, tmp_path, dtype):
    """Of steps that differ in tokens and learning rate, of which some make no update."""
    program = build(train.MAIN, "gpu")
    more = ["--train", tokens_file, *SMALL, "--dtype", dtype, "--total-batch", 4 * LENGTH]
    more += "--steps 6 --warmup 2 --outlier-window 2 --skip-norm-z 0.5 --sample 5".split()
    for name, graph in (("launches", []), ("graph", ["--graph"])):
        command = [program, *more, "--out", tmp_path / name, *graph]
        text = succeeded(subprocess.run([*map(str, command)], capture_output=True, text=True))
        assert "6 steps, in whose loop 0 allocations and 0 synchronisations" in text
    assert {"0", "1"} == set(column(tmp_path / "graph", "skipped"))
    assert outcome(tmp_path / "graph", 6) == outcome(tmp_path / "launches", 6)


def test_it_compiles_and_links_for_a_gpu():
    """With cuBLASLt; what it computes there, tests on a GPU would say."""
    try:
        toolkit = cuda.tests_toolkit()
        train.cublaslt(toolkit)
    except BuildError as error:
        pytest.skip(str(error))
    if not (settings.PACKAGE / "lib" / "libthunderkittens_kernels.so").is_file():
        pytest.skip("the kernels' library is not built")
    program = train.build_program(train.MAIN, toolkit, settings.PACKAGE)
    done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60)
    assert "--total-batch" in succeeded(done)
    if environment.has_driver():
        return
    data = "--train=/nowhere.bin"
    refused(subprocess.run([program, data], capture_output=True, text=True, timeout=60))
