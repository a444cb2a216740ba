"""Models of transformers on our ops: the same loss, gradients and tokens as the original's."""

import math

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from transformers.loss.loss_utils import ForCausalLMLoss

from tests.integrations.models import (
    LAYERS,
    NAMES,
    RMS_NORMS,
    VOCABULARY,
    Calls,
    batch,
    bound,
    make,
    pair,
    step,
)
from thunderkittens.integrations.transformers import apply
from thunderkittens.integrations.transformers._forwards import turn, turned_by
from thunderkittens.integrations.transformers._loss import CausalLMLoss


def distance(model, others):
    """The root mean square of the difference of all gradients, and of the reference's own."""
    pairs = list(zip(model, others, strict=True))
    return math.sqrt(sum(float((a.double() - b.double()).square().sum()) for a, b in pairs))


@pytest.mark.parametrize(
    ("name", "linear"),
    [*((name, False) for name in NAMES), ("llama", True), ("gemma2", True), ("gpt2", True)],
)
def test_loss_and_gradients_are_the_originals_in_float32(name, linear):
    ours, theirs = pair(name)
    apply(ours, linear_loss=linear)
    inputs = batch()
    with Calls() as calls:
        loss, gradients = step(ours, **inputs)
    expected, expected_gradients = step(theirs, **inputs)
    assert abs(loss - expected) <= bound(expected)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert (gradient - other).abs().max() <= bound(other)
    # The ops were there: each norm, gate and rotary embedding of the model, and one loss.
    linear = linear and name != "gemma2"  # which caps its logits
    if name == "gpt2":
        assert calls.count["layer_norm_forward"] == 5 and calls.count["mlp_forward"] == LAYERS
    else:
        assert calls.count["rms_norm_forward"] == RMS_NORMS[name]
        assert calls.count["rotary"] == 2 * LAYERS  # there and back
        assert calls.count["geglu" if "gemma" in name else "swiglu"] == LAYERS
    assert calls.count["linear_cross_entropy_forward" if linear else "cross_entropy_forward"] == 1


def test_a_projection_that_is_not_plain_is_called():
    """One with a hook, and one of another class."""
    ours, theirs = pair("gpt2")
    apply(ours)
    seen = []
    hooked, other = (block.mlp for block in ours.transformer.h[:2])
    hooked.c_fc.register_forward_hook(lambda *_: seen.append("hook"))
    other.c_proj.__class__ = type("Other", (type(other.c_proj),), {})
    inputs = batch()
    with Calls() as calls:
        loss, gradients = step(ours, **inputs)
    assert seen == ["hook"]
    assert calls.count["gelu"] == 2 and calls.count["mlp_forward"] == LAYERS - 2
    expected, expected_gradients = step(theirs, **inputs)
    assert abs(loss - expected) <= bound(expected)
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        assert (gradient - wanted).abs().max() <= bound(wanted)


@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3", "gemma3", "gpt2"])
def test_in_bfloat16_it_is_no_worse_than_the_original(name):
    """Against the original in float64, with the same weights; all gradients together."""
    ours, theirs = pair(name, torch.bfloat16)
    exact = make(name, torch.float64)
    exact.load_state_dict(theirs.state_dict())
    apply(ours)
    inputs = batch(rows=4, length=16, padding=0)
    (_, gradients), (_, others), (_, reference) = (step(m, **inputs) for m in (ours, theirs, exact))
    error, original = distance(gradients, reference), distance(others, reference)
    # Both are sums of many roundings, ours of fewer; a quarter is left for chance.
    assert 0 < error <= 1.25 * original


@pytest.mark.parametrize("name", ["qwen3", "phi3", "gemma2", "gpt2"])
@torch.no_grad()
def test_generate_gives_the_same_tokens(name):
    ours, theirs = pair(name)
    apply(ours, linear_loss=True)
    inputs = batch()
    prompt = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    a, b = (model.eval().generate(**prompt, **options) for model in (ours, theirs))
    assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_a_norm_rounds_where_the_original_does(name):
    ours, theirs = pair(name, torch.bfloat16)
    apply(ours)
    path = "transformer.ln_f" if name == "gpt2" else "model.norm"
    x = torch.randn(64, 64, dtype=torch.bfloat16)
    y, expected = (model.get_submodule(path)(x) for model in (ours, theirs))
    # A last bit of rstd, in float32, moves one result in 2^8 or so over the middle of two.
    assert (y != expected).float().mean() <= 0.02
    assert y.dtype == expected.dtype and torch.allclose(y, expected, rtol=2**-7, atol=0.0)


@pytest.mark.parametrize("weight", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_norms_promote_as_the_original_does(name, dtype, weight):
    ours, theirs = pair(name)
    apply(ours)
    x = torch.randn(2, 3, 64, dtype=dtype)
    y, expected = (model.model.norm.to(weight)(x) for model in (ours, theirs))
    assert y.dtype == expected.dtype
    assert torch.allclose(y.float(), expected.float(), rtol=2**-6, atol=1e-6)


def test_a_norm_of_heads_keeps_their_layout():
    ours, theirs = pair("gemma3")
    apply(ours)
    x = torch.randn(2, 5, 4, 16).transpose(1, 2)
    y, expected = (model.model.layers[0].self_attn.q_norm(x) for model in (ours, theirs))
    assert y.stride() == expected.stride() and torch.allclose(y, expected, rtol=1e-5)


def turned_by_hand(q, k, cos, sin, unsqueeze_dim=1):
    """The formula, over the first cos.shape[-1] elements."""
    width = cos.shape[-1]
    cos, sin = (t.unsqueeze(unsqueeze_dim) for t in (cos, sin))

    def turned(x):
        head, tail = x[..., :width], x[..., width:]
        half = torch.cat((-head[..., width // 2 :], head[..., : width // 2]), dim=-1)
        return torch.cat((head * cos + half * sin, tail), dim=-1)

    return turned(q), turned(k)


def tables(rows, length, width, dtype=torch.float32):
    angles = torch.rand(rows, length, width // 2).repeat(1, 1, 2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("width", [16, 8])
@pytest.mark.parametrize("table", [torch.float32, torch.bfloat16], ids=str)
def test_rotary_is_the_formula(rows, width, table):
    q, k = (torch.randn(3, 5, heads, 16).transpose(1, 2) for heads in (4, 2))
    cos, sin = tables(rows, 5, width, table)
    for made, expected in zip(turn(q, k, cos, sin), turned_by_hand(q, k, cos, sin), strict=True):
        assert (
            made.dtype == expected.dtype
            and made.stride() == q.new_empty(3, 5, made.shape[1], 16).transpose(1, 2).stride()
        )
        assert torch.allclose(made, expected, rtol=1e-5, atol=1e-6)


def test_rotary_leaves_what_it_does_not_know_to_the_original():
    q, k = torch.randn(3, 4, 5, 16), torch.randn(3, 2, 5, 16)
    asked = []

    def original(*arguments):
        asked.append(arguments)
        return arguments[:2]

    turned = turned_by(original)
    cos, sin = tables(1, 5, 16)
    turned(q, k, cos, sin)
    assert not asked
    turned(q.transpose(1, 2), k.transpose(1, 2), cos, sin, unsqueeze_dim=2)
    turned(q, k, cos[:, :1], sin[:, :1])
    turned(q, k, cos.requires_grad_(), sin)
    turned(q, k, tables(1, 5, 16)[0], tables(1, 5, 12)[1])
    assert len(asked) == 4


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_items_in_batch": 7},
        {"num_items_in_batch": torch.tensor(7)},
        {"ignore_index": 3},
        {"shift_labels": True},
        {"unknown": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_loss_takes_what_the_originals_takes(options, dtype):
    logits = torch.randn(2, 6, VOCABULARY).to(dtype)
    labels = torch.randint(VOCABULARY, (2, 6)).masked_fill(torch.rand(2, 6) < 0.3, 3)
    labels[0, 2] = options.get("ignore_index", -100)
    if "shift_labels" in options:
        options, labels = {"shift_labels": labels.roll(-1, -1)}, None
    made = CausalLMLoss()(logits, labels, VOCABULARY, **options)
    expected = ForCausalLMLoss(logits, labels, VOCABULARY, **options)
    assert made.dtype == expected.dtype and torch.allclose(made, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_linear_loss_takes_what_the_loss_takes(name):
    ours, theirs = pair(name)
    apply(ours, linear_loss=True)
    inputs = batch() | {"num_items_in_batch": torch.tensor(9)}
    made, expected = ours(**inputs), theirs(**inputs)
    assert made.logits is None and abs(made.loss - expected.loss) <= bound(expected.loss)
    assert isinstance(ours(**inputs, return_dict=False)[0], torch.Tensor)
    hidden = ours(**inputs, output_hidden_states=True).hidden_states
    assert len(hidden) == LAYERS + 1


class Adapter(nn.Module):
    """As adapters and quantised layers are: a module around a Linear."""

    def __init__(self, linear):
        super().__init__()
        self.linear, self.calls = linear, 0

    @property
    def weight(self):
        return self.linear.weight

    def forward(self, x):
        self.calls += 1
        return 2 * self.linear(x)


def test_linear_loss_steps_aside():
    """In evaluation, where logits are asked for, with an adapter or a hook on the head."""
    model, inputs = make("llama"), batch()
    apply(model, linear_loss=True)
    assert model(**inputs).logits is None
    assert model(**inputs, logits_to_keep=torch.arange(12)).logits is not None
    assert model(inputs["input_ids"]).loss is None
    hook = model.lm_head.register_forward_hook(lambda *_: None)
    assert model(**inputs).logits is not None
    hook.remove()
    assert model.eval()(**inputs).logits is not None
    model.train().lm_head = Adapter(model.lm_head)
    assert model(**inputs).logits is not None and model.lm_head.calls == 1


@pytest.mark.parametrize("name", ["llama", "phi3"])
def test_projections_are_called_whatever_they_are(name):
    ours, theirs = pair(name)
    apply(ours)
    for model in (ours, theirs):
        for layer in model.model.layers:
            for path, module in list(layer.mlp.named_children()):
                if isinstance(module, nn.Linear):
                    setattr(layer.mlp, path, Adapter(module))
    inputs = batch()
    (loss, _), (expected, _) = (step(model, **inputs) for model in (ours, theirs))
    assert abs(loss - expected) <= bound(expected)
    assert ours.model.layers[0].mlp.down_proj.calls == 1


def test_gate_and_up_of_two_dtypes_go_the_originals_way():
    ours, theirs = pair("llama")
    apply(ours)
    for model in (ours, theirs):
        model.model.layers[0].mlp.gate_proj.register_forward_hook(lambda m, x, y: y.bfloat16())
    inputs = batch()
    (loss, _), (expected, _) = (step(model, **inputs) for model in (ours, theirs))
    assert abs(loss - expected) <= bound(expected)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu_in_bfloat16(name, monkeypatch):
    """A training step by kernels alone (no fallback), against the original in float64."""
    monkeypatch.setenv("THUNDERKITTENS_STRICT", "1")
    ours, theirs = pair(name, torch.bfloat16)
    exact = make(name, torch.float64)
    exact.load_state_dict(theirs.state_dict())
    apply(ours, linear_loss=True)
    inputs = batch(rows=4, length=16, padding=0)
    _, reference = step(exact, **inputs)
    inputs = {key: value.cuda() for key, value in inputs.items()}
    results = [[g.cpu() for g in step(model.cuda(), **inputs)[1]] for model in (ours, theirs)]
    error, original = (distance(gradients, reference) for gradients in results)
    assert 0 < error <= 1.25 * original
