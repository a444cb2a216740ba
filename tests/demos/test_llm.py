"""`python -m demos.generate --model` and `--random`, as a user runs them."""

import json
import re
import shutil
import signal

import figures
import generate as program
import llm
import peer
import pytest

pytest.importorskip("transformers")

from llamas import made
from models import cached_attention
from models.decoding import Decoder
from models.sampling import Sampling

PROGRAM = "generate/generate.py"
TINY = ["--random", "tiny", "--device", "cpu"]
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def folder(tmp_path, tokenizer):
    """A model of the tokens that the tests' tokenizer has, with that and a template for chats."""
    path = shutil.copytree(made("qwen3", vocab_size=tokenizer.get_vocab_size())[1], tmp_path / "m")
    tokenizer.save(str(path / "tokenizer.json"))
    entries = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(entries))
    return path


def test_a_text_is_streamed_and_its_figures_follow(folder, tokenizer, capsys, tmp_path):
    options = ["--prompt", "def add_1_2", "--tokens", "12", "--seed", "5", "--device", "cpu"]
    report = tmp_path / "report.json"
    assert program.main(["--model", str(folder), *options, "--json", str(report)]) == 0
    printed = capsys.readouterr().out
    model = made("qwen3", vocab_size=tokenizer.get_vocab_size())[2]
    prompt = tokenizer.encode("def add_1_2").ids
    decoder = Decoder(model, 1, len(prompt) + 11, Sampling(0.6, 0, 0.95))
    text = tokenizer.decode([step[0] for step in decoder.generate([prompt], 12, seed=5)])
    assert f"def add_1_2{text}".rstrip("\ufffd") in printed
    assert re.search(r"first token after [\d.,]+ ms, then [\d.]+ ms a step, [\d.,]+ tok", printed)
    assert "attention_decode: torch (" in printed
    found = json.loads(report.read_text())
    assert found["prompt_tokens"] == [len(prompt)] * 2 and found["tokens"] == 12
    assert found["thunderkittens"]["step_ms"] > 0 and found["copy_bytes_per_second"] > 0
    assert found["peak_bytes"] is None and found["device"] == "cpu"
    assert "transformers" not in found


def test_several_prompts_of_different_lengths_are_compared(folder, capsys):
    prompts = ["--prompt", "def add_1_2", "--prompt", "x", "--prompt", "    return x + 7"]
    options = [*prompts, "--tokens", "10", "--compare", "--device", "cpu", "--batch", "2"]
    assert program.main(["--model", str(folder), *options]) == 0
    printed = capsys.readouterr().out
    assert "text 6:" in printed and "transformers, sdpa: first token after" in printed
    assert "compare: 6 of 6 texts equal, 0 equal up to a tie, 0 different" in printed


def test_a_paged_cache_writes_the_same_text(folder, capsys):
    options = ["--prompt", "def add_1_2", "--tokens", "90", "--device", "cpu"]
    printed = []
    for cache in ("static", "paged"):
        assert program.main(["--model", str(folder), *options, "--cache", cache]) == 0
        printed.append(capsys.readouterr().out.split("thunderkittens: first")[0].split("\n", 1)[1])
    assert printed[0] == printed[1]


def test_a_chat_is_the_tokenizers_template(folder, tokenizer, monkeypatch):
    seen = []
    start = Decoder.generate
    monkeypatch.setattr(
        Decoder,
        "generate",
        lambda self, prompts, *rest: (seen.append(prompts), start(self, prompts, *rest))[1],
    )
    options = ["--chat", "--system", "Be brief.", "--prompt", "Why?", "--tokens", "2"]
    assert program.main(["--model", str(folder), *options, "--device", "cpu"]) == 0
    text = "<system>Be brief.\n<user>Why?\n<assistant>"
    assert seen[0] == [tokenizer.encode(text, add_special_tokens=False).ids]


def test_a_chat_without_a_template_is_a_sentence(folder, capsys):
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    assert program.main(["--model", str(folder), "--chat", "--device", "cpu"]) == 2
    assert "no chat template to use" in capsys.readouterr().err


def test_random_weights_need_no_files_and_json_may_be_all_that_is_printed(run_program):
    options = ["--prompt-tokens", 9, "--tokens", 5, "--batch", 3, "--compare", "--json", "-"]
    result = run_program(PROGRAM, *TINY, *options)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["agreed"] and report["texts"] == 3 and report["parameters"] == 5245184
    assert report["transformers"]["step_ms"] > 0 and "tiny (random weights)" in result.stderr


@pytest.mark.parametrize("cache", ["static", "paged"])
def test_a_cache_of_fp8_is_a_byte_an_element(cache, capsys):
    options = [*TINY, "--prompt-tokens", "9", "--tokens", "5", "--json", "-", "--cache", cache]
    reports = []
    for dtype in ("auto", "fp8"):
        assert program.main([*options, "--device", "cpu", "--cache-dtype", dtype]) == 0
        printed = capsys.readouterr()
        reports.append(json.loads(printed.out))
        assert ("MiB in fp8" in printed.err) == (dtype == "fp8")
    assert reports[0]["cache_bytes"] == 4 * reports[1]["cache_bytes"] > 0  # of float32
    assert reports[1]["bytes_of_step"] < reports[0]["bytes_of_step"]


@pytest.mark.parametrize("fault", ["rotary", "window"])
def test_compare_fails_on_a_wrong_op(folder, monkeypatch, capsys, fault):
    if fault == "rotary":
        monkeypatch.setattr(cached_attention.tk, "rotary", lambda q, k, *tables, **options: (q, k))
    else:
        monkeypatch.setattr(cached_attention, "_window", lambda size: (0, 0))
    options = ["--prompt", "def add_1_2(x):\n    return", "--tokens", "12", "--compare"]
    assert program.main(["--model", str(folder), *options, "--device", "cpu"]) == 1
    assert "1 different" in capsys.readouterr().out


def test_the_peer_has_the_very_weights():
    eager, _, ours = made("llama")
    other = peer.Peer(ours, eager.config.to_dict())
    owned = {p.untyped_storage().data_ptr() for p in ours.parameters()}
    assert {p.untyped_storage().data_ptr() for p in other.model.parameters()} == owned
    assert not any(t.is_meta for t in other.model.buffers())


def test_a_steps_time_is_from_token_to_token(monkeypatch):
    """Also what is printed in between: the next step is under way meanwhile."""
    clock = iter([0.0, 3.0, 4.0, 6.0, 9.0])
    monkeypatch.setattr(figures.time, "perf_counter", lambda: next(clock))
    run = figures.timed(lambda limit: iter([[1], [2], [3], [None]]), 4, rehearse=False)
    assert run.rows == [[1, 2, 3]] and run.first == [3.0] and run.steps == [1.0, 2.0, 3.0]
    assert run.to_first == 3.0 and run.step == 2.5
    assert figures.of_run(run, 10)["bytes_per_second"] == 4.0


def test_rehearsals_are_of_the_prompt_alone():
    limits = []

    def generate(limit):
        limits.append(limit)
        yield from [[7]] * limit

    run = figures.timed(generate, 3, rehearse=True)
    assert limits == [1, 1, 1, 1, 1, 3] and len(run.first) == 5 and run.rows == [[7, 7, 7]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--random", "tiny", "--model", "x"], "not allowed with"),
        (["--random", "tiny", "--prompt", "x"], "--random has no tokenizer"),
        (["--random", "tiny", "--chat"], "--random has no tokenizer"),
        (["--model", "x", "--prompt-tokens", "4", "--prompt", "x"], "takes the place of"),
        (["--model", "x", "--system", "x"], "--system needs --chat"),
        (
            ["--random", "tiny", "--compare", "--cache-dtype", "fp8"],
            "--compare needs --cache-dtype",
        ),
        (["--random", "tiny", "--tokens", "0"], "must be in 1"),
        (["--random", "tiny", "--top-p", "1.5"], "must be in 0.0"),
    ],
)
def test_bad_arguments_exit_2_with_a_sentence(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        program.main(arguments)
    assert caught.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nowhere"], "nowhere: no such checkpoint folder"),
        (["--random", "nothing"], "neither a config.json nor one of tiny, llama-3.1-8b"),
        ([*TINY, "--prompt-tokens", "10", "--tokens", "5", "--context", "13"], "at least 14"),
        ([*TINY, "--prompt-tokens", "4000", "--tokens", "98"], "has 4096 positions"),
    ],
)
def test_what_cannot_be_done_exits_2_with_a_sentence(arguments, message, capsys):
    assert program.main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_a_context_that_fits_is_taken(capsys):
    arguments = [*TINY, "--prompt-tokens", "10", "--tokens", "5", "--context", "14"]
    assert program.main(arguments) == 0


def test_an_interrupt_ends_the_program(start_program):
    process = start_program(PROGRAM, *TINY, "--prompt-tokens", 4, "--tokens", 4000)
    assert process.stdout.readline().startswith("tiny")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_the_live_line_counts_layers():
    from reading import Reading

    reading = Reading(llm.Console(), 1234, 4, on_gpu=False)
    for layer in range(3):
        reading.on_layer(layer)
    assert str(reading.__rich__()) == "reading 1,234 tokens: layer 3 of 4"
    steps = iter(range(3))
    assert list(reading.over(x for x in steps)) == [0, 1, 2]


@pytest.mark.gpu
def test_compare_passes_on_the_gpu(capsys):
    options = ["--prompt-tokens", "200", "--batch", "2", "--tokens", "12", "--compare"]
    assert program.main(["--random", "tiny", *options]) == 0
    printed = capsys.readouterr().out
    assert "attention_decode: cuda (" in printed and "peak memory: " in printed
