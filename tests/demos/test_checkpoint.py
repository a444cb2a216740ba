"""Checkpoints: a round trip in both forms of the names, and one clear error for what is damaged."""

import contextlib
import json
import random
import resource
import struct
from pathlib import Path

import pytest
import torch
from models import checkpoint
from models.checkpoint import CheckpointError
from models.gpt2 import GPT2
from safetensors.torch import load_file, save_file


def weights(folder):
    return folder / "model.safetensors"


def edit_config(folder, **entries):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@contextlib.contextmanager
def no_large_allocation(limit=1 << 30):
    """Inside, this process gets at most `limit` more bytes of address space."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def expect_error(folder, match=None):
    """One CheckpointError of one line that names the file, before anything large is allocated."""
    with no_large_allocation(), pytest.raises(CheckpointError, match=match) as caught:
        checkpoint.load(folder)
    message = str(caught.value)
    assert "\n" not in message and folder.name in message and len(message) < 600


def write_safetensors(path, header: dict, data: bytes, length: int | None = None):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_round_trip_with_and_without_the_prefix(checkpoint_folder, prefix):
    original = load_file(weights(checkpoint_folder))
    renamed = {prefix + name.removeprefix("transformer."): t for name, t in original.items()}
    renamed["h.0.attn.bias"] = torch.ones(1, 1, 32, 32)  # a mask that old checkpoints carry
    save_file(renamed, weights(checkpoint_folder))
    model = checkpoint.load(checkpoint_folder)
    assert not model.training and model.state_dict().keys() == original.keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, original[name]), name


def test_names_and_layouts_are_those_of_hugging_face(checkpoint_folder):
    shapes = {name: list(t.shape) for name, t in load_file(weights(checkpoint_folder)).items()}
    block = "transformer.h.0."
    assert shapes.pop("transformer.wte.weight")[1] == 32
    assert shapes == {
        "transformer.wpe.weight": [32, 32],
        block + "ln_1.weight": [32],
        block + "ln_1.bias": [32],
        block + "attn.c_attn.weight": [32, 96],
        block + "attn.c_attn.bias": [96],
        block + "attn.c_proj.weight": [32, 32],
        block + "attn.c_proj.bias": [32],
        block + "ln_2.weight": [32],
        block + "ln_2.bias": [32],
        block + "mlp.c_fc.weight": [32, 128],
        block + "mlp.c_fc.bias": [128],
        block + "mlp.c_proj.weight": [128, 32],
        block + "mlp.c_proj.bias": [32],
        "transformer.ln_f.weight": [32],
        "transformer.ln_f.bias": [32],
    }
    entries = json.loads((checkpoint_folder / "config.json").read_text())
    assert entries["model_type"] == "gpt2" and entries["activation_function"] == "gelu_new"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_weights_load_in_any_dtype(checkpoint_folder, tokenizer, tmp_path, dtype):
    model = checkpoint.load(checkpoint_folder)
    checkpoint.save(tmp_path / "small", model, tokenizer, dtype)
    again = checkpoint.load(tmp_path / "small", torch.float32)
    for name, value in again.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, model.state_dict()[name].to(dtype).float())


def test_an_untied_head_round_trips(checkpoint_folder, tokenizer, tmp_path):
    config = checkpoint.read_config(checkpoint_folder)
    model = GPT2(type(config)(**(vars(config) | {"tie_word_embeddings": False})))
    model.initialize()
    checkpoint.save(tmp_path / "untied", model, tokenizer)
    again = checkpoint.load(tmp_path / "untied")
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, 5000, -1])
def test_truncated_weights(checkpoint_folder, keep):
    path = weights(checkpoint_folder)
    path.write_bytes(path.read_bytes()[:keep])
    expect_error(checkpoint_folder, "not a safetensors file")


def test_weights_with_bytes_after_the_end(checkpoint_folder):
    path = weights(checkpoint_folder)
    path.write_bytes(path.read_bytes() + b"\0" * 1000)
    expect_error(checkpoint_folder, "not a safetensors file")


@pytest.mark.parametrize("length", [10**6, 2**31, 2**40, 2**63, 2**64 - 1])
def test_a_header_length_beyond_the_file(checkpoint_folder, length):
    path = weights(checkpoint_folder)
    path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])
    expect_error(checkpoint_folder, "not a safetensors file")


@pytest.mark.parametrize("shape", [[2**40, 2**40], [2**62, 4], [10**30], [-1, 32], "x", None])
def test_insane_shapes_in_the_header(checkpoint_folder, shape):
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 16]}
    write_safetensors(weights(checkpoint_folder), {"transformer.wte.weight": entry}, bytes(16))
    expect_error(checkpoint_folder)


def test_overlapping_offsets(checkpoint_folder):
    entry = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    write_safetensors(weights(checkpoint_folder), {"a": entry, "b": entry}, bytes(16))
    expect_error(checkpoint_folder, "not a safetensors file")


def test_bit_flips_in_the_header(checkpoint_folder):
    """A flipped bit is an error, or (in a name that is not used, or a space) changes nothing."""
    path = weights(checkpoint_folder)
    sound, model = path.read_bytes(), checkpoint.load(checkpoint_folder)
    header = 8 + struct.unpack("<Q", sound[:8])[0]
    bits, errors = random.Random(0).sample(range(8 * header), 300), 0
    for bit in bits:
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            loaded = checkpoint.load(checkpoint_folder)
        except CheckpointError as error:
            errors += 1
            assert "\n" not in str(error)
            continue
        for name, value in loaded.state_dict().items():
            assert value.shape == model.state_dict()[name].shape
    assert errors > 250


@pytest.mark.parametrize(
    "content",
    [b"\x80\x02}q\x00.", b"PK\x03\x04" + bytes(300), b"GGUF" + bytes(300), b"<html></html>" * 20],
    ids=["pickle", "zip", "gguf", "html"],
)
def test_foreign_weights(checkpoint_folder, content):
    weights(checkpoint_folder).write_bytes(content)
    expect_error(checkpoint_folder, "not a safetensors file")


def test_pickle_is_refused_by_name(checkpoint_folder):
    weights(checkpoint_folder).rename(checkpoint_folder / "pytorch_model.bin")
    expect_error(checkpoint_folder, "pytorch_model.bin is pickle")


def test_missing_pieces(checkpoint_folder, tmp_path):
    expect_error(tmp_path / "nowhere", "no such checkpoint folder")
    expect_error(weights(checkpoint_folder), "no such checkpoint folder")
    weights(checkpoint_folder).unlink()
    expect_error(checkpoint_folder, "there is no model.safetensors")
    (checkpoint_folder / "config.json").unlink()
    expect_error(checkpoint_folder, "there is no such file")


def test_a_missing_tensor(checkpoint_folder):
    tensors = load_file(weights(checkpoint_folder))
    del tensors["transformer.h.0.mlp.c_fc.bias"]
    save_file(tensors, weights(checkpoint_folder))
    expect_error(checkpoint_folder, "there is no tensor transformer.h.0.mlp.c_fc.bias")


def test_another_models_tensors(checkpoint_folder):
    save_file({"model.embed_tokens.weight": torch.zeros(8, 8)}, weights(checkpoint_folder))
    expect_error(checkpoint_folder, "there is no tensor")


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.mT.contiguous(),
        lambda t: t[:-1].clone(),
        lambda t: t[None],
        lambda t: t.double(),
        lambda t: t.to(torch.int32),
    ],
    ids=["transposed", "short", "rank", "float64", "int32"],
)
def test_wrong_shapes_and_dtypes(checkpoint_folder, change):
    tensors = load_file(weights(checkpoint_folder))
    name = "transformer.h.0.attn.c_attn.weight"
    tensors[name] = change(tensors[name])
    save_file(tensors, weights(checkpoint_folder))
    expect_error(checkpoint_folder, r"c_attn.weight must be \[32, 96\]")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite(checkpoint_folder, value):
    tensors = load_file(weights(checkpoint_folder))
    tensors["transformer.ln_f.bias"][3] = value
    save_file(tensors, weights(checkpoint_folder))
    expect_error(checkpoint_folder, "ln_f.bias holds values that are not finite")


@pytest.mark.parametrize(
    "entries",
    [
        {"n_embd": 10**12},
        {"n_layer": 10**12},
        {"n_layer": 0},
        {"n_head": -2},
        {"n_head": 3},
        {"vocab_size": "many"},
        {"vocab_size": 1.5},
        {"vocab_size": True},
        {"n_positions": None},
        {"n_positions": 1 << 19},
        {"n_embd": 1 << 16, "n_layer": 1 << 8},
        {"n_inner": 10**9},
        {"layer_norm_epsilon": float("nan")},
        {"layer_norm_epsilon": -1.0},
        {"layer_norm_epsilon": [1e-5]},
        {"activation_function": "relu"},
        {"activation_function": ["gelu_new"]},
        {"model_type": "llama"},
        {"scale_attn_by_inverse_layer_idx": True},
        {"tie_word_embeddings": "yes"},
    ],
    ids=str,
)
def test_insane_configs(checkpoint_folder, entries):
    edit_config(checkpoint_folder, **entries)
    expect_error(checkpoint_folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"n_embd": 1' + b"0" * 5000 + b"}"],
    ids=["empty", "cut", "list", "number", "binary", "deep", "digits"],
)
def test_foreign_configs(checkpoint_folder, content):
    (checkpoint_folder / "config.json").write_bytes(content)
    expect_error(checkpoint_folder, "config.json")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"model": 3}', b"\xff", b"[" * 100_000])
def test_foreign_tokenizers(checkpoint_folder, content):
    config = checkpoint.read_config(checkpoint_folder)
    (checkpoint_folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        checkpoint.load_tokenizer(checkpoint_folder, config)


def test_a_tokenizer_with_more_tokens_than_the_model(checkpoint_folder):
    config = checkpoint.read_config(checkpoint_folder)
    smaller = type(config)(**(vars(config) | {"vocab_size": 100}))
    with pytest.raises(CheckpointError, match="the largest token is"):
        checkpoint.load_tokenizer(checkpoint_folder, smaller)


def test_a_tokenizer_in_the_older_form(checkpoint_folder, tokenizer):
    config = checkpoint.read_config(checkpoint_folder)
    tokenizer.model.save(str(checkpoint_folder))  # vocab.json, merges.txt
    (checkpoint_folder / "tokenizer.json").unlink()
    older = checkpoint.load_tokenizer(checkpoint_folder, config)
    text = "def add_3_5(x):\n    return ünï + 1\n"
    assert older.encode(text).ids == tokenizer.encode(text).ids
    (checkpoint_folder / "merges.txt").write_text("not merges at all\n")
    with pytest.raises(CheckpointError, match="not a tokenizer"):
        checkpoint.load_tokenizer(checkpoint_folder, config)
