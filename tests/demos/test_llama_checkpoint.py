"""Checkpoints of Llama's shape: all forms that there are, and one sentence for what is damaged."""

import json
import shutil
import struct

import pytest
import torch

pytest.importorskip("transformers")

from llamas import KINDS, PROMPTS, loaded, made
from models import llama_config
from models.checkpoint import CheckpointError
from models.decoding import full_logits
from safetensors.torch import load_file, save_file

INDEX = "model.safetensors.index.json"
NORM = "model.layers.1.input_layernorm.weight"


@pytest.fixture
def folder(tmp_path):
    """A sound checkpoint of several files, for a test to damage."""
    return shutil.copytree(made("llama")[1], tmp_path / "sound")


def edit(path, **entries):
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def expect_error(folder, match):
    """One CheckpointError of one line that names the file."""
    with pytest.raises(CheckpointError, match=match) as caught:
        loaded(folder)
    message = str(caught.value)
    assert "\n" not in message and folder.name in message and len(message) < 600


def file_of(folder, name):
    return folder / json.loads((folder / INDEX).read_text())["weight_map"][name]


def change(folder, name, function):
    """Writes what `function` makes of a tensor, or without it where that is None."""
    path = file_of(folder, name)
    tensors = load_file(path)
    value = function(tensors.pop(name))
    save_file(tensors | ({} if value is None else {name: value}), path)


def as_one_file(folder):
    tensors = {}
    for path in folder.glob("*.safetensors"):
        tensors |= load_file(path)
        path.unlink()
    (folder / INDEX).unlink()
    save_file(tensors, folder / "model.safetensors")
    return tensors


def same(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_one_file_is_as_good_as_several(folder):
    expected = loaded(folder)
    as_one_file(folder)
    assert same(loaded(folder), expected)
    assert not expected.training and not any(p.requires_grad for p in expected.parameters())


def test_weights_keep_their_dtype_or_take_another(folder):
    tensors = as_one_file(folder)
    rounded = {name: value.bfloat16() for name, value in tensors.items()}
    save_file(rounded, folder / "model.safetensors")
    assert loaded(folder).dtype == torch.bfloat16
    assert same(loaded(folder, torch.float32), loaded(folder).float())


def test_what_says_nothing_may_be_there(tmp_path):
    """Tables that old checkpoints carry, and a head that is the embedding."""
    folder = shutil.copytree(made("qwen2")[1], tmp_path / "tied")
    expected = loaded(folder)
    tensors = as_one_file(folder)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors")
    assert same(loaded(folder), expected)


@pytest.mark.parametrize("change", [lambda t: t + 1e-3, lambda t: t[:-1].clone()])
def test_a_head_that_is_not_the_embedding_it_is_said_to_be(tmp_path, change):
    """transformers takes it for the head then, whatever the config says."""
    folder = shutil.copytree(made("qwen2")[1], tmp_path / "tied")
    tensors = as_one_file(folder)
    tensors["lm_head.weight"] = change(tensors["model.embed_tokens.weight"])
    save_file(tensors, folder / "model.safetensors")
    expect_error(folder, "lm_head.weight must be ")


def test_a_head_that_is_missing(folder):
    change(folder, "lm_head.weight", lambda value: None)
    expect_error(folder, r"there is no tensor lm_head\.weight$")


def test_sizes_that_the_index_says_count_for_nothing(folder):
    expected = loaded(folder)
    edit(folder / INDEX, metadata={"total_size": 10**30})
    assert same(loaded(folder), expected)


@pytest.mark.parametrize("field", ["shape", "data_offsets"])
def test_sizes_that_a_file_lies_about(folder, field):
    """A header that speaks of an exabyte: nothing is allocated for it."""
    path = file_of(folder, NORM)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header[NORM][field] = [1 << 58] if field == "shape" else [0, 1 << 60]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    expect_error(folder, "not a safetensors file")


def test_the_older_form_of_rope(folder):
    expected = full_logits(loaded(folder), PROMPTS[:1])[0]
    path = folder / "config.json"
    entries = json.loads(path.read_text())
    options = entries.pop("rope_parameters")
    entries["rope_theta"] = options.pop("rope_theta")
    entries["rope_scaling"] = options
    path.write_text(json.dumps(entries))
    assert torch.equal(full_logits(loaded(folder), PROMPTS[:1])[0], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_progress_ends_with_all_bytes(kind):
    from models import llama_checkpoint

    folder, seen = made(kind)[1], []
    config, _ = llama_config.read_config(folder)
    model = llama_checkpoint.load(
        folder, config, None, torch.device("cpu"), lambda *pair: seen.append(pair)
    )
    size = sum(p.nbytes for p in model.parameters())
    assert seen[-1] == (size, size) and seen == sorted(seen)


def test_ends_of_texts(folder):
    edit(folder / "config.json", eos_token_id=5)
    (folder / "generation_config.json").unlink(missing_ok=True)
    assert llama_config.read_config(folder)[0].ends == (5,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert llama_config.read_config(folder)[0].ends == (7, 9)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 101]}')
    expect_error(folder, "eos_token_id must be tokens of the model")


def test_a_missing_tensor(folder):
    change(folder, NORM, lambda value: None)
    expect_error(folder, f"there is no tensor {NORM}$")


def test_an_unexpected_tensor(folder):
    tensors = as_one_file(folder) | {"model.layers.2.self_attn.q_proj.weight": torch.ones(64, 64)}
    save_file(tensors, folder / "model.safetensors")
    expect_error(folder, r"config\.json has no tensor model\.layers\.2\.self_attn\.q_proj\.weight$")
    edit(folder / "config.json", num_hidden_layers=1)
    expect_error(folder, r"has no tensor model\.layers\.1\..* and \d+ more$")


@pytest.mark.parametrize(
    "function",
    [
        lambda t: t[:-1].clone(),
        lambda t: t[None],
        lambda t: t.double(),
        lambda t: t.to(torch.int32),
    ],
    ids=["short", "rank", "float64", "int32"],
)
def test_misshapen_tensors(folder, function):
    change(folder, NORM, function)
    expect_error(folder, r"input_layernorm.weight must be \[64\] of F16 or BF16 or F32, got")


def test_a_config_of_other_sizes(folder):
    edit(folder / "config.json", num_key_value_heads=1)
    expect_error(folder, r"k_proj.weight must be \[16, 64\] .* got \[32, 64\]")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite(folder, value):
    change(folder, NORM, lambda t: t.index_fill(0, torch.tensor(3), value))
    expect_error(folder, "input_layernorm.weight holds values that are not finite")


@pytest.mark.parametrize("keep", [0, 7, 8, 100, -1])
def test_truncated_files(folder, keep):
    path = file_of(folder, NORM)
    path.write_bytes(path.read_bytes()[:keep])
    expect_error(folder, "not a safetensors file")


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        (None, "weight_map must name"),
        ([], "weight_map must name"),
        ({}, "weight_map must name"),
        ({"a": "../other.safetensors"}, "not the name of a file of the folder"),
        ({"a": "/etc/passwd"}, "not the name of a file of the folder"),
        ({"a": "config.json"}, "not the name of a file of the folder"),
        ({"a": 3}, "not the name of a file of the folder"),
        ({"a": "gone.safetensors"}, r"there is no file gone\.safetensors"),
        ({"a": "a\nb.safetensors"}, "not the name of a file of the folder"),
        ({"a": "a\0b.safetensors"}, "not the name of a file of the folder"),
        ({"a": "\ud800.safetensors"}, "not the name of a file of the folder"),
        ({"a": "x" * 300 + ".safetensors"}, "not the name of a file of the folder"),
    ],
)
def test_damaged_indices(folder, weight_map, message):
    edit(folder / INDEX, weight_map=weight_map)
    expect_error(folder, message)


def test_a_tensor_in_two_files(folder):
    path = next(p for p in folder.glob("*.safetensors") if p != file_of(folder, NORM))
    save_file(load_file(path) | {NORM: torch.ones(64)}, path)
    expect_error(folder, f"{NORM} is in two files")


def test_missing_pieces(folder, tmp_path):
    expect_error(tmp_path / "nowhere", "no such checkpoint folder")
    as_one_file(folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    expect_error(folder, r"pytorch_model\.bin is pickle")
    (folder / "pytorch_model.bin").unlink()
    expect_error(folder, "there is neither model.safetensors nor")


@pytest.mark.parametrize(
    "entries",
    [
        {"model_type": "gpt2"},
        {"model_type": None},
        {"hidden_act": "gelu"},
        {"quantization_config": {"bits": 4}},
        {"hidden_size": 10**12},
        {"num_hidden_layers": 0},
        {"num_attention_heads": "many"},
        {"num_key_value_heads": 3},
        {"head_dim": 15},
        {"vocab_size": True},
        {"rms_norm_eps": float("nan")},
        {"rms_norm_eps": -1.0},
        {"attention_bias": "yes"},
        {"tie_word_embeddings": 1},
        {"eos_token_id": 101},
        {"eos_token_id": "end"},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}},
        {"rope_parameters": 7},
        {"rope_parameters": {"rope_theta": 0.5}},
        {"rope_parameters": {"partial_rotary_factor": 0.5}},
        {"rope_parameters": {"rope_theta": 10**400}},
        {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0}}},
        {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 2, 3]}},
        {"rope_scaling": {"type": "linear", "factor": 4.0}},  # beside rope_parameters
        *(
            {"rope_parameters": None, "rope_scaling": {key: kind, "factor": 4.0}}
            for key in ("type", "rope_type", "name")
            for kind in ("linear", "dynamic", "yarn", "longrope")
        ),
        {"model_type": "mistral", "sliding_window": 0},
        {"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["full"]},
    ],
    ids=str,
)
def test_configs_that_are_refused(folder, entries):
    edit(folder / "config.json", **entries)
    expect_error(folder, r"config\.json: ")
