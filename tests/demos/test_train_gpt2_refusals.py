"""What the trainer without Python and torch refuses: damaged files, and options that are wrong."""

import json
import math
import re
import struct
import subprocess
import sys

import pytest
import torch
from models import checkpoint
from trainers import RECIPE, SMALL, make_checkpoint, refused, succeeded

import build_tools.__main__
from build_tools import fingerprint, ops, settings, train


def header(*numbers: int) -> bytes:
    return struct.pack("<3i", *numbers).ljust(1024, b"\0")


DAMAGED_TOKENS = {
    "empty": (b"", "is empty"),
    "short": (b"abc", "header of 1024 bytes, got 3"),
    "magic": (header(1, 1, 64) + bytes(128), "magic 20240520", "got 1 and 1"),
    "version": (header(20240520, 2, 64) + bytes(128), "got 20240520 and 2"),
    "cut": (header(20240520, 1, 64) + bytes(126), "64 tokens", "got 1150"),
    "longer": (header(20240520, 1, 64) + bytes(130), "64 tokens"),
    "negative": (header(20240520, 1, -1) + bytes(128), "-1 tokens"),
    "few": (header(20240520, 1, 16) + bytes(32), "a sequence of 17 tokens, got 16"),
    "unknown": (header(20240520, 1, 64) + b"\xff\x00" * 64, "vocabulary of 61", "got 255"),
}


@pytest.mark.parametrize("damage", DAMAGED_TOKENS)
def test_damaged_tokens_are_refused(run_trainer, tmp_path, damage):
    content, *parts = DAMAGED_TOKENS[damage]
    path = tmp_path / "damaged.bin"
    path.write_bytes(content)
    refused(run_trainer("--train", path, "--out", tmp_path / "out", *SMALL), path, *parts)


def test_damaged_tokens_to_evaluate_on_are_refused_at_once(run_trainer, tokens_file, tmp_path):
    path, out = tmp_path / "eval.bin", tmp_path / "out"
    path.write_bytes(header(20240520, 1, 64) + b"\x07\x00" * 48 + b"\xff\x00" * 16)
    more = ["--eval", path, "--out", out, *SMALL]
    refused(run_trainer("--train", tokens_file, *more), path, "token 48", "vocabulary of 61")
    assert not out.exists()


def tensors(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED_WEIGHTS = {
    "empty": (b"", "is empty"),
    "short": (b"abc", "not a safetensors file"),
    "length": (struct.pack("<Q", 1 << 60) + b"{}", "not a safetensors file"),
    "json": (tensors(b'{"a": [1, 2'), "not JSON at character 11"),
    "nested": (tensors(b"[" * 5000), "not JSON"),
    "list": (tensors([]), "no object"),
    "dtype": (tensors({"a": {**ENTRY, "dtype": "F33"}}, bytes(8)), "unknown dtype"),
    "shape": (tensors({"a": {**ENTRY, "shape": [-1]}}, bytes(8)), "a lacks"),
    "huge": (tensors({"a": {**ENTRY, "shape": [1 << 40, 1 << 40]}}, bytes(8)), "too large"),
    "bytes": (tensors({"a": {**ENTRY, "shape": [3]}}, bytes(8)), "a needs 12 bytes"),
    "cut": (tensors({"a": ENTRY}, bytes(7)), "a needs 8 bytes"),
    "longer": (tensors({"a": ENTRY}, bytes(9)), "have 8 bytes, the file has 9"),
    "missing": (tensors({"a": ENTRY}, bytes(8)), "has no tensor wte.weight"),
    "another": (tensors({"wte.weight": ENTRY}, bytes(8)), "must be [61, 32] of", "got [2]"),
}


@pytest.mark.parametrize("damage", DAMAGED_WEIGHTS)
def test_damaged_weights_are_refused(run_trainer, tokens_file, tmp_path, damage):
    content, *parts = DAMAGED_WEIGHTS[damage]
    make_checkpoint(tmp_path / "init")
    path = tmp_path / "init" / "model.safetensors"
    path.write_bytes(content)
    init = ["--init", tmp_path / "init", "--out", tmp_path / "out"]
    refused(run_trainer("--train", tokens_file, *RECIPE, *init), path, *parts)


def test_weights_that_are_not_finite_are_refused(run_trainer, tokens_file, tmp_path):
    model = make_checkpoint(tmp_path / "init")
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.bias[3] = math.nan
    path = tmp_path / "init" / "model.safetensors"
    checkpoint.write_tensors(path, model.state_dict())
    init = ["--init", tmp_path / "init", "--out", tmp_path / "out"]
    refused(
        run_trainer("--train", tokens_file, *RECIPE, *init), path, "h.1.mlp.c_fc.bias", "not finite"
    )


DAMAGED_CONFIGS = {
    "model_type": ("bert", "model_type must be gpt2 or llama, got bert"),
    "n_embd": (-3, "n_embd must be a whole number"),
    "n_layer": (1.5, "n_layer must be a whole number"),
    "n_head": (5, "a multiple of the heads"),
    "activation_function": ("relu", "got relu"),
    "tie_word_embeddings": (False, "must be true"),
    "n_inner": (64, "four times n_embd"),
    "layer_norm_epsilon": (-1, "layer_norm_epsilon"),
}


@pytest.mark.parametrize("name", DAMAGED_CONFIGS)
def test_damaged_configs_are_refused(run_trainer, tokens_file, tmp_path, name):
    value, part = DAMAGED_CONFIGS[name]
    make_checkpoint(tmp_path / "init")
    path = tmp_path / "init" / "config.json"
    checkpoint.write_json(path, {**checkpoint.read_json(path), name: value})
    init = ["--init", tmp_path / "init", "--out", tmp_path / "out"]
    refused(run_trainer("--train", tokens_file, *RECIPE, *init), path, part)


WRONG_OPTIONS = {
    "--stpes=3": "there is no option --stpes",
    "--steps=many": "--steps must be 0 to 1e+15, got many",
    "--lr=-1": "--lr must be 0 to 1e+06, got -1",
    "--schedule=zigzag": "got zigzag",
    "--total-batch=33": "a multiple of --batch times --length times --ranks (32), got 33",
    "--width=12": "width / heads",
    "--heads=3": "a multiple of the heads",
    "--tokenizer=/nowhere.json": "/nowhere.json",
    "--train=/nowhere.bin": "/nowhere.bin",
    "--steps": "--steps needs a value",
    "--out=": "--out must be a folder, got nothing",
    "--batch=1048576 --vocabulary=1048576": "bytes: out of memory",
    "--graph=false": "--graph=false: it takes no value",
    "--resume --init=/somewhere": "--init begins a run, and --resume goes on with one: got both",
    # What would change nothing.
    "--theta=500": "--theta must come with --model llama",
    "--hidden=16": "--hidden must come with --model llama",
    "--decay-share=0.5": "--decay-share must come with --schedule wsd",
    "--schedule=constant --last-lr=1": "--last-lr must come with --schedule cosine, linear or wsd",
    "--eval-batches=3": "--eval-batches must come with --eval",
    "--eval-every=3": "--eval-every must come with --eval or --hellaswag",
    "--sample-every=3": "--sample-every must come with --sample",
    "--prompt=3": "--prompt must come with --sample",
    "--temperature=0.5": "--temperature must come with --sample",
    "--top-k=5": "--top-k must come with --sample",
}


@pytest.mark.parametrize("option", WRONG_OPTIONS)
def test_wrong_options_are_refused(run_trainer, tokens_file, tmp_path, option):
    out = tmp_path / "out"
    done = run_trainer("--train", tokens_file, "--out", out, *SMALL, *option.split())
    refused(done, WRONG_OPTIONS[option])
    assert not list(tmp_path.glob("out/*")), "nothing is written before all is checked"


AGAINST_THE_CHECKPOINT = {
    "--model=llama": "--model must be gpt2, as in the checkpoint, or be left out, got llama",
    "--layers=7": "--layers must be 2, as in the checkpoint, or be left out, got 7",
    "--width=64": "--width must be 32, as in the checkpoint, or be left out, got 64",
    "--vocabulary=50": "as in the checkpoint, or be left out, got 50",
}


@pytest.mark.parametrize("option", AGAINST_THE_CHECKPOINT)
def test_another_model_than_the_checkpoints_is_refused(run_trainer, tokens_file, tmp_path, option):
    make_checkpoint(tmp_path / "init")
    more = [*RECIPE, "--init", tmp_path / "init", "--out", tmp_path / "out", option]
    refused(run_trainer("--train", tokens_file, *more), AGAINST_THE_CHECKPOINT[option])


def test_a_library_of_other_headers_is_refused(trainer, monkeypatch, tmp_path):
    """Before anything is done."""
    header = tmp_path / fingerprint.HEADER
    header.parent.mkdir(parents=True)
    text = (fingerprint.write() / fingerprint.HEADER).read_text()
    header.write_text(text.replace(settings.version(), "9.8.7"))
    monkeypatch.setattr(fingerprint, "write", lambda: tmp_path)
    source = settings.build_dir() / "generated" / "train_of_other_headers.cpp"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text((settings.ROOT / train.MAIN).read_text())
    program = train.build_program(source.relative_to(settings.ROOT), None, settings.PACKAGE)
    done = subprocess.run([program, "--help"], capture_output=True, text=True)
    refused(done, "compiled with, 9.8.7", f"{ops.KERNELS} of {settings.version()}")
    assert not done.stdout


def test_help_lists_every_option_with_its_default(run_trainer):
    text = succeeded(run_trainer("--help"))
    for line in ("--total-batch N", "--warmup N", "(cosine)", "(0.0006)", "--resume"):
        assert line in text
    assert len(re.findall(r"^  --[a-z]", text, re.M)) > 30


def test_make_passes_help_on(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["build_tools", "train", "--simulator", "--help"])
    arguments, rest = build_tools.__main__._parse()
    assert arguments.command == "train" and rest == ["--simulator", "--help"]
