"""The model of Llama's shape: what transformers' eager models compute, with the same weights."""

import pytest
import torch

pytest.importorskip("transformers")

import transformers
from llamas import KINDS, LLAMA3, PROMPTS, SIZES, changed, eager_logits, made
from models import llama_checkpoint, llama_config, quantized
from models.decoding import full_logits
from models.llama import Rope, rotary_tables
from torch.utils._python_dispatch import TorchDispatchMode

from tests.integrations.models import bound


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_eagers_at_every_position(kind):
    eager, folder, ours = made(kind)
    assert len(list(folder.glob("*.safetensors"))) > 2
    for logits, prompt in zip(full_logits(ours, PROMPTS), PROMPTS, strict=True):
        expected = eager_logits(eager, prompt)
        assert (logits - expected).abs().max() <= bound(expected)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("llama", {"rope": Rope(1e4)}),
        ("mistral", {"windows": (None, None)}),
        ("mistral", {"windows": (9, 9)}),
        ("mistral", {"windows": (7, 7)}),
        ("qwen2", {"windows": (8, 8)}),
        ("qwen2", {"windows": (None, None)}),
    ],
    ids=str,
)
def test_what_sets_an_architecture_apart_is_felt(kind, options):
    """Else the test above would say nothing of it."""
    eager, _, ours = made(kind)
    expected = eager_logits(eager, PROMPTS[0])
    (logits,) = full_logits(changed(ours, **options), PROMPTS[:1])
    assert (logits - expected).abs().max() > 10 * bound(expected)


def test_the_last_logits_alone():
    _, _, ours = made("llama")
    every, last = full_logits(ours, PROMPTS), full_logits(ours, PROMPTS, last=True)
    for logits, one in zip(every, last, strict=True):
        assert (logits[-1:] - one).abs().max() <= bound(logits)


@pytest.mark.parametrize("kind", KINDS)
def test_views_are_the_weights_under_their_names_in_checkpoints(kind):
    eager, _, ours = made(kind)
    views, state = llama_checkpoint.views(ours), eager.state_dict()
    assert views.keys() == state.keys() - ({"lm_head.weight"} if kind == "qwen2" else set())
    for name, value in views.items():
        assert torch.equal(value, state[name]), name
    owned = {p.untyped_storage().data_ptr() for p in ours.parameters()}
    assert {v.untyped_storage().data_ptr() for v in views.values()} == owned


@pytest.mark.parametrize("options", [{"rope_type": "default", "rope_theta": 5e5}, LLAMA3])
def test_rotary_tables_are_those_of_transformers(options):
    """theirs are float32 throughout: an angle is off by a few of its roundings."""
    sizes = SIZES | {"hidden_size": 256, "rope_parameters": options}
    config = transformers.LlamaConfig(**sizes)
    rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    expected = rotary(torch.empty(1), torch.arange(100)[None])
    shape, _ = config.to_dict(), None
    own = llama_config.config_of(shape, llama_config.SHAPES)
    for table, wanted in zip(rotary_tables(own, 100, torch.device("cpu")), expected, strict=True):
        assert (table - wanted[0, :, :32]).abs().max() <= 100 * 2**-22


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.2-1b", "qwen2.5-7b", "qwen3-8b"])
def test_shapes_have_the_parameters_that_their_names_say(name):
    config, entries = llama_config.read_shape(name)
    with torch.device("meta"):
        size = sum(p.numel() for p in llama_checkpoint.Llama(config).parameters())
        other = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**entries)
        )
    assert size == sum(p.numel() for p in other.parameters())
    billions = {"llama-3.1-8b": 8.03, "llama-3.2-1b": 1.24, "qwen2.5-7b": 7.62, "qwen3-8b": 8.19}
    assert round(size / 1e9, 2) == billions[name]


def test_random_weights_are_a_seeds():
    config, _ = llama_config.read_shape("tiny")
    one, same, other = (
        llama_checkpoint.random(config, torch.bfloat16, torch.device("cpu"), seed)
        for seed in (1, 1, 2)
    )
    for a, b, c in zip(one.parameters(), same.parameters(), other.parameters(), strict=True):
        assert a.dtype == torch.bfloat16 and torch.equal(a, b)
        assert a.dim() == 1 or not torch.equal(a, c)


class Promises(TorchDispatchMode):
    """Of each product that is called, whether its weight is promised to be constant."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "thunderkittens" and "linear" in func.name():
            names = [argument.name for argument in func._schema.arguments]
            given = dict(zip(names, args, strict=False))
            self.seen.append(given.get("weight_is_constant", False))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("form", [None, "fp8"])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_frozen_model_promises_that_its_weights_are_constant(kind, form):
    """Of every product, the head's too, of a weight of its own or the embedding's."""
    model, frozen = (made.__wrapped__(kind)[2] for _ in range(2))
    frozen.freeze()
    for each in (model, frozen):
        if form is not None:
            quantized.quantize(each, form)
    with Promises() as before:
        want = full_logits(model, PROMPTS[:1])[0]
    with Promises() as promises:
        got = full_logits(frozen, PROMPTS[:1])[0]
    assert torch.equal(got, want)
    assert len(promises.seen) == len(before.seen) == 4 * len(model.blocks) + 1
    assert all(promises.seen)
    assert not any(before.seen)
