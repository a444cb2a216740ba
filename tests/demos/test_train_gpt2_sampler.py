"""The trainer without Python and torch: what its model writes, beside PyTorch in float64."""

import json
import math
import re

import pytest
import torch
from models.gpt2 import GPT2, Config
from trainers import (
    CONFIG,
    DTYPES,
    PROMPT,
    RECIPE,
    SMALL,
    VOCABULARY,
    logits_of,
    make_checkpoint,
    read_tokens,
    refused,
    sampled_roundoff,
    succeeded,
    write_tokens,
)

# ---- Logits -------------------------------------------------------------------------------------

# Heads of 16 and 8 columns go through attention_cached, of 64 through attention_decode.
SHAPES = [("float32", 32, 2), ("bfloat16", 32, 4), ("bfloat16", 128, 2)]
CASES = [("simulator", *shape) for shape in SHAPES]
CASES += [pytest.param("gpu", *shape, marks=pytest.mark.gpu) for shape in SHAPES]


@pytest.mark.parametrize(("where", "dtype", "width", "heads"), CASES)
def test_logits_over_the_cache_are_pytorchs_over_the_whole(tmp_path, where, dtype, width, heads):
    """Per block the norms, products, scores, their exponentials and sums, gelu, the additions: ten
    roundings or so, which add up as a random walk does."""
    config = Config(VOCABULARY, n_positions=24, n_embd=width, n_layer=2, n_head=heads)
    model = make_checkpoint(tmp_path / "model", config, 0.85 / math.sqrt(width))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(DTYPES[dtype][0]))
        want = model.double()(torch.tensor([PROMPT]))[0]
    got = logits_of(where, tmp_path / "model", dtype)
    assert got.shape == want.shape
    bound = sampled_roundoff(where, dtype) * math.sqrt(10 * config.n_layer + 1)
    assert (got.double() - want).norm() < bound * want.norm()
    if where == "gpu":
        return
    raced = logits_of("race", tmp_path / "model", dtype, "random:3,race")
    assert torch.equal(raced, got)


# ---- What is drawn ------------------------------------------------------------------------------


def random_bits(state: int):
    """SplitMix64's numbers, as random.h has them."""
    mask = 2**64 - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        yield z ^ z >> 31


def draw(model: GPT2, prompt: list[int], count: int, temperature: float, top_k: int, bits):
    """What a sample has to be, and how near to another token a number that was drawn came."""
    tokens, nearest = list(prompt), 1.0
    for _ in range(count):
        with torch.no_grad():
            logits = model(torch.tensor([tokens]))[0, -1]
        if temperature == 0:
            best = logits.topk(2)
            nearest = min(nearest, float(best.values[0] - best.values[1]))
            tokens.append(int(best.indices[0]))
            continue
        kept = logits.topk(top_k).indices if top_k else torch.arange(len(logits))
        sums = (logits[kept] / temperature).softmax(0).cumsum(0)
        at = (next(bits) >> 11) * 2.0**-53
        nearest = min(nearest, float((sums - at).abs().min()))
        tokens.append(int(kept[int((sums <= at).sum())]))
    return tokens[len(prompt) :], nearest


def numbers(text: str) -> dict[int, list[int]]:
    """The samples of a run without a tokenizer, by step."""
    found = re.findall(r"^step (\d+)  sample:((?: \d+)+)$", text, re.M)
    return {int(step): [int(token) for token in tokens.split()] for step, tokens in found}


@pytest.mark.parametrize(
    ("temperature", "top_k", "seed"), [(0, 0, 0), (1, 0, 0), (0.7, 0, 9), (1.5, 5, 3), (1, 1, 0)]
)
def test_samples_are_drawn_from_pytorchs_probabilities(
    run_trainer, tokens_file, tmp_path, temperature, top_k, seed
):
    model = make_checkpoint(tmp_path / "init", deviation=0.15).double()
    more = f"--steps 0 --sample 12 --temperature {temperature} --top-k {top_k} --seed {seed}"
    more = [*more.split(), "--prompt", "5,17,5", "--init", tmp_path / "init"]
    text = succeeded(run_trainer("--train", tokens_file, "--out", tmp_path / "out", *RECIPE, *more))
    of_seed = next(random_bits(~seed & (2**64 - 1)))
    bits = random_bits(of_seed)  # of step 0
    want, nearest = draw(model, [5, 17, 5], 12, temperature, top_k, bits)
    assert nearest > 1e-5, "float32 may not decide otherwise"
    assert numbers(text) == {0: want}


def test_samples_come_every_so_many_steps_and_again_after_resuming(
    run_trainer, tokens_file, tmp_path
):
    """They do not change what is trained, nor cost the loop an allocation."""
    more = "--sample 5 --sample-every 2 --save-every 4 --keep 9 --steps 7 --dtype bfloat16".split()
    arguments = ["--train", tokens_file, *SMALL, *more]
    text = succeeded(run_trainer(*arguments, "--out", tmp_path / "out"))
    assert "7 steps, in whose loop 0 allocations and 0 synchronisations" in text
    assert re.search(r"^sampling +\d+\.\d MiB", text, re.M)
    samples = numbers(text)
    assert list(samples) == [2, 4, 6, 7]
    assert len({tuple(tokens) for tokens in samples.values()}) == 4
    other = numbers(succeeded(run_trainer(*arguments, "--out", tmp_path / "seed", "--seed", 1)))
    assert all(other[step] != samples[step] for step in samples)
    weights = (tmp_path / "out" / "step-00000007" / "model.safetensors").read_bytes()
    for path in (tmp_path / "out" / "step-00000007").iterdir():
        path.unlink()
    (tmp_path / "out" / "step-00000007").rmdir()
    text = succeeded(run_trainer(*arguments, "--out", tmp_path / "out", "--resume"))
    assert numbers(text) == {step: samples[step] for step in (6, 7)}
    assert (tmp_path / "out" / "step-00000007" / "model.safetensors").read_bytes() == weights
    silent = ["--train", tokens_file, *SMALL, *"--steps 7 --dtype bfloat16".split()]
    assert not numbers(succeeded(run_trainer(*silent, "--out", tmp_path / "silent")))
    assert (tmp_path / "silent" / "step-00000007" / "model.safetensors").read_bytes() == weights


def test_without_a_prompt_it_begins_with_the_first_token(run_trainer, tokens_file, tmp_path):
    make_checkpoint(tmp_path / "init", deviation=0.15)
    arguments = ["--train", tokens_file, *RECIPE, *"--steps 0 --sample 8 --init".split()]
    arguments.append(tmp_path / "init")
    first = int(read_tokens(tokens_file)[0])
    texts = [
        succeeded(run_trainer(*arguments, "--out", tmp_path / name, *more))
        for name, more in (("a", []), ("b", ["--prompt", first]), ("c", ["--prompt", first + 1]))
    ]
    assert numbers(texts[0]) == numbers(texts[1]) != numbers(texts[2])


# ---- As text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("escaped", [False, True])
def test_a_tokenizer_makes_text_of_them(run_trainer, tokenizer, tmp_path, escaped):
    """Also where its JSON has escapes. What is no character is replaced. Most tokens are drawn:
    all are about as probable."""
    size = tokenizer.get_vocab_size()
    path = tmp_path / "tokenizer.json"
    train = write_tokens(tmp_path / "train.bin", torch.arange(321) % size, size)
    tokenizer.save(str(path))
    if escaped:
        path.write_text(json.dumps(json.loads(path.read_text()), ensure_ascii=True))
        assert "\\u0120" in path.read_text()
    more = ["--train", train, *SMALL, "--vocabulary", size, *"--steps 0 --length 320".split()]
    more += ["--batch", 1, "--sample", 320]
    ids = numbers(succeeded(run_trainer(*more, "--out", tmp_path / "ids")))[0]
    assert len(set(ids)) > 0.6 * size
    text = succeeded(run_trainer(*more, "--out", tmp_path / "text", "--tokenizer", path))
    got = text.split("step 0  sample:\n")[1].removesuffix(text.splitlines()[-1] + "\n")

    def visible(text: str) -> str:
        text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "\ufffd", text)
        return re.sub("\ufffd+", "\ufffd", text)

    assert visible(got) == visible(tokenizer.decode(ids, skip_special_tokens=False) + "\n")


def test_what_would_control_a_terminal_is_replaced(run_trainer, tmp_path):
    r"""Also half of a pair of \u escapes, and a token that has no name. 173 is the last byte whose
    character is another one: 323."""
    shown = {"\\u001b[31m": "\ufffd[31m", "\\ud83d\\ude00": "\U0001f600", "\\ud83d": "\ufffd" * 3}
    shown |= {'a\\tb\\n\\"\\\\': 'a\tb\n"\\', "\\u00e9\\u0085": "\u00e9\ufffd"}
    added = [f'{{"id": {i}, "content": "{name}"}}' for i, name in enumerate(shown)]
    path = tmp_path / "tokenizer.json"
    path.write_text(
        '{"model": {"vocab": {"Ã\\u0143": 5}}, "decoder": {"type": "ByteLevel"}, "added_tokens": ['
        + ", ".join(added)
        + "]}"
    )
    train = write_tokens(tmp_path / "train.bin", torch.arange(65) % 7, 7)
    more = ["--train", train, *SMALL, "--vocabulary", 7, *"--steps 0 --length 64".split()]
    more += ["--batch", 1, "--sample", 64]
    ids = numbers(succeeded(run_trainer(*more, "--out", tmp_path / "ids")))[0]
    assert set(ids) == set(range(7))
    text = succeeded(run_trainer(*more, "--out", tmp_path / "text", "--tokenizer", path))
    names = [*shown.values(), "í", "\ufffd"]
    assert f"sample:\n{''.join(names[token] for token in ids)}\n0 steps" in text


def test_a_tokenizer_of_another_kind_leaves_numbers(run_trainer, tokens_file, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"vocab": [["a", 0.5]]}, "decoder": None}))
    more = [*SMALL, *"--steps 0 --sample 3".split(), "--tokenizer", path]
    text = succeeded(run_trainer("--train", tokens_file, "--out", tmp_path / "out", *more))
    assert f"{path}: its decoder is not ByteLevel: samples are numbers\n" in text
    assert len(numbers(text)[0]) == 3


DAMAGED = {
    "no JSON": ("{", "not JSON at character 1"),
    "no model": ('{"decoder": {"type": "ByteLevel"}}', "a model with a vocab"),
    "list": ("[]", "a model with a vocab"),
    "escape": ('{"a": "\\u12g4"}', "not JSON at character 11"),
    "number": (
        '{"model": {"vocab": {"a": -1}}, "decoder": {"type": "ByteLevel"}}',
        "a token's number must be 0 to 1048575",
    ),
    "half": (
        '{"model": {"vocab": {"a": 0.5}}, "decoder": {"type": "ByteLevel"}}',
        "a token's number must be 0 to 1048575",
    ),
    "added": (
        '{"model": {"vocab": {}}, "decoder": {"type": "ByteLevel"}, "added_tokens": [{}]}',
        "a token's number must be 0 to 1048575",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_tokenizers_are_refused(run_trainer, tokens_file, tmp_path, damage):
    content, part = DAMAGED[damage]
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    more = [*SMALL, "--tokenizer", path, "--out", tmp_path / "out"]
    refused(run_trainer("--train", tokens_file, *more), path, part)


WRONG = {
    "--prompt=1,x": "numbers of tokens, with commas between them, got 1,x",
    "--prompt=1,": "got 1,",
    "--prompt=-3": "got -3",
    "--prompt=4,61": "below the vocabulary of 61, got 61",
    "--sample=17": "the model's positions and one, 17, got 18",
    "--temperature=-1": "--temperature must be 0 to 100",
}


@pytest.mark.parametrize("option", WRONG)
def test_wrong_samples_are_refused(run_trainer, tokens_file, tmp_path, option):
    more = [*SMALL, "--sample", 3, option, "--out", tmp_path / "out"]
    refused(run_trainer("--train", tokens_file, *more), WRONG[option])
    assert not (tmp_path / "out").exists()


def test_the_longest_sample_fills_all_positions(run_trainer, tokens_file, tmp_path):
    model = make_checkpoint(tmp_path / "init", deviation=0.15).double()
    more = ["--steps", 0, "--sample", CONFIG.n_positions, "--temperature", 0, "--prompt", 9]
    more += ["--init", tmp_path / "init", "--out", tmp_path / "out"]
    text = succeeded(run_trainer("--train", tokens_file, *RECIPE, *more))
    want, nearest = draw(model, [9], CONFIG.n_positions, 0, 0, None)
    assert nearest > 1e-4
    assert numbers(text) == {0: want}
