"""`apply` and `revert`: what they touch, what they leave alone, and what else goes on working."""

import ast
import copy
import doctest
import pickle
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

import transformers
from transformers.models.llama import modeling_llama

import thunderkittens
from tests.integrations.models import LAYERS, Calls, batch, make, pair, step
from thunderkittens.integrations.kernels import mapping
from thunderkittens.integrations.transformers import apply, revert


def state(model):
    """What `apply` may not leave behind: classes and attributes."""
    return [(type(m), {**vars(m)}) for m in model.modules()]


def counts(places):
    return {p.part: (p.name, p.outcome, len(p.paths)) for p in places}


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "phi3", "gemma2", "gpt2"])
def test_revert_puts_back_exactly_what_was(name):
    model, linear = make(name), name not in ("gpt2", "qwen2")
    before, tensors = state(model), dict(model.state_dict())
    report = apply(model, linear_loss=linear)
    assert apply(model, linear_loss=linear).replaced == report.replaced
    assert state(model) != before
    after = model.state_dict()
    assert list(after) == list(tensors) and all(after[k] is not None for k in tensors)
    assert all(after[key].data_ptr() == tensors[key].data_ptr() for key in tensors)
    assert counts(revert(model).reverted) == counts(report.replaced)
    assert state(model) == before
    assert not revert(model).reverted


def test_the_report():
    model = make("qwen3")
    report = apply(model)
    assert counts(report.replaced) == {
        "norm": ("Qwen3RMSNorm", "rms_norm", 9),
        "rotary": ("Qwen3Attention", "rotary", LAYERS),
        "mlp": ("Qwen3MLP", "swiglu", LAYERS),
        "loss": ("Qwen3ForCausalLM", "cross_entropy", 1),
    }
    assert not report.skipped and "model.norm" in report.replaced[0].paths
    text = str(report)
    assert text.startswith("Qwen3ForCausalLM: 14 parts of it on thunderkittens ops")
    assert "2 × Qwen3MLP" in text and "model.layers.*.self_attn.q_norm" in text
    assert "put back" in str(revert(model))
    assert str(revert(model)) == "Qwen3ForCausalLM: nothing of it takes thunderkittens ops"


@pytest.mark.parametrize("part", ["norms", "mlps", "rotary", "loss"])
def test_parts_are_chosen(part):
    model = make("llama")
    chosen = {name: name == part for name in ("norms", "mlps", "rotary", "loss")}
    singular = {"norms": "norm", "mlps": "mlp"}.get(part, part)
    assert {places.part for places in apply(model, **chosen).replaced} == {singular}


def test_other_instances_are_not_touched():
    ours, theirs = pair("llama")
    forward, function = modeling_llama.LlamaMLP.forward, modeling_llama.apply_rotary_pos_emb
    before = state(theirs)
    apply(ours, linear_loss=True)
    with Calls() as calls:
        step(theirs, **batch())
    assert not calls.count and state(theirs) == before
    assert modeling_llama.LlamaMLP.forward is forward
    assert modeling_llama.apply_rotary_pos_emb is function


def test_classes_keep_their_names_and_their_kin():
    model = make("llama")
    apply(model, linear_loss=True)
    norm = model.model.norm
    assert isinstance(norm, modeling_llama.LlamaRMSNorm)
    assert isinstance(model, transformers.LlamaForCausalLM)
    assert (type(norm).__name__, type(norm).__module__) == (
        "LlamaRMSNorm",
        modeling_llama.LlamaRMSNorm.__module__,
    )
    assert "(norm): thunderkittens.LlamaRMSNorm((64,)" in repr(model)


def test_save_pretrained_writes_the_same_files(tmp_path):
    ours, theirs = pair("qwen2")
    apply(ours, linear_loss=True)
    for name, model in (("ours", ours), ("theirs", theirs)):
        model.save_pretrained(tmp_path / name)
    names = sorted(path.name for path in (tmp_path / "theirs").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "ours").iterdir())
    for name in names:
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    assert ours.lm_head.weight is ours.model.embed_tokens.weight


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("name", ["phi3", "gpt2"])
def test_copies_and_pickles_stay_applied(name, copied):
    model = make(name)
    report = apply(model, linear_loss=True)
    other, inputs = copied(model), batch()
    assert apply(other, linear_loss=True).replaced == report.replaced
    with Calls() as calls:
        assert torch.equal(step(other, **inputs)[0], step(model, **inputs)[0])
    assert calls.count["linear_cross_entropy_forward"] == 2
    assert next(other.parameters()) is not next(model.parameters())
    revert(other)
    assert apply(model, linear_loss=True).replaced == report.replaced


def test_torch_compile_takes_it_whole():
    model, inputs = make("qwen3"), batch()
    expected, _ = step(model, **inputs)
    apply(model, linear_loss=True)
    targets = []

    def backend(graph, example):
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    assert abs(compiled(**inputs).loss - expected) < 1e-5 * expected
    ours = [target for target in targets if "thunderkittens" in target]
    count = len(targets)
    compiled(**inputs)
    assert len(targets) == count  # its guards hold
    # norms, rotary embedding, gates and the loss, all in the graph
    assert len(ours) == 9 + LAYERS + LAYERS + 1
    revert(model)
    assert abs(compiled(**inputs).loss - expected) < 1e-5 * expected  # compiled again
    torch._dynamo.reset()


def test_checkpointing_dtypes_and_devices():
    model, inputs = make("llama"), batch()
    apply(model)
    loss, gradients = step(model, **inputs)
    model.activation_checkpointing_enable()
    again, others = step(model, **inputs)
    assert loss == again and all(map(torch.equal, gradients, others))
    model.to(torch.bfloat16).to("meta")
    x = torch.empty(2, 5, 64, dtype=torch.bfloat16, device="meta")
    for module in (model.model.norm, model.model.layers[0].mlp):
        assert (module(x).device, module(x).dtype) == (x.device, x.dtype)


def test_under_autocast():
    ours, theirs = pair("qwen3")
    apply(ours)
    inputs = batch(padding=0)
    with torch.autocast("cpu", torch.bfloat16):
        (loss, gradients), (expected, others) = (step(m, **inputs) for m in (ours, theirs))
    assert abs(loss - expected) < 2**-8 * expected
    assert [g.dtype for g in gradients] == [g.dtype for g in others]


def test_hooks_and_recorded_outputs_stay():
    model, seen = make("llama"), []
    for module in model.model.layers[0].modules():
        module.register_forward_hook(lambda m, *_: seen.append(type(m).__name__))
    apply(model)
    outputs = model.eval()(batch()["input_ids"], output_hidden_states=True)
    assert len(outputs.hidden_states) == LAYERS + 1
    assert seen.count("LlamaRMSNorm") == 2 and "LlamaMLP" in seen


def test_what_another_library_hooked_by_an_instances_forward():
    """As accelerate's hooks: the forward of the instance calls the class's, kept beside it."""
    model, calls = make("llama"), []

    def forward(module, *args):
        calls.append(module)
        return module._old_forward(*args)

    norm, mlp = model.model.norm, model.model.layers[0].mlp
    norm._old_forward, norm.forward = norm.forward, types.MethodType(forward, norm)
    mlp.forward = types.MethodType(lambda self, x: x, mlp)  # something else altogether
    before = state(model)
    report = apply(model)
    (left,) = report.skipped
    assert left.paths == ("model.layers.0.mlp",) and "forward of its own" in left.outcome
    with Calls() as ours:
        norm(torch.randn(2, 64))
    assert calls == [norm] and ours.count["rms_norm_forward"] == 1
    revert(model)
    assert state(model) == before


def test_a_class_over_ours_stays():
    """As FSDP2's: it changes the class of what it shards."""
    model = make("llama")
    apply(model)
    norm = model.model.norm
    norm.__class__ = type("FSDPLlamaRMSNorm", (type(norm),), {})
    report = revert(model)
    (left,) = report.skipped
    assert left.paths == ("model.norm",) and "another library has changed" in left.outcome
    assert "model.norm" in str(apply(model).skipped)


@pytest.mark.parametrize(
    ("name", "options", "part", "reason"),
    [
        ("llama", {"hidden_act": "relu"}, "mlp", "no op for its activation, ReLU"),
        ("gpt2", {"activation_function": "silu"}, "mlp", "no op for its activation, SiLU"),
    ],
)
def test_unknown_activations_are_left_alone(name, options, part, reason):
    report = apply(make(name, **options))
    (left,) = report.skipped
    assert left.part == part and reason in left.outcome and len(left.paths) == LAYERS
    assert reason in str(report)


def test_what_others_have_patched_is_left_alone(monkeypatch):
    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", lambda self, x: x)
    (left,) = apply(make("llama")).skipped
    assert left.part == "norm" and "which is not known" in left.outcome
    model = make("llama")
    model.model.layers[0].mlp.act_fn.register_forward_hook(lambda *_: None)
    assert "its activation has hooks" in str(apply(model))


def test_other_losses_and_modules_are_left_alone():
    config = make("llama").config
    model = transformers.LlamaForSequenceClassification(config)
    report = apply(model)
    assert {p.part for p in report.replaced} == {"norm", "rotary", "mlp"}

    class OddRMSNorm(nn.Module):
        def forward(self, x):
            return x

    model = nn.Sequential(OddRMSNorm(), nn.LayerNorm((2, 3)), make("gemma2"))
    report = apply(model, linear_loss=True)
    reasons = {p.name: p.outcome for p in report.skipped}
    assert "not one of the classes" in reasons["OddRMSNorm"]
    assert "more than one dimension" in reasons["LayerNorm"]
    assert "caps its logits" in reasons["Gemma2ForCausalLM"]
    model = make("llama")
    model.loss_function = own = lambda *args, **kwargs: torch.zeros(())
    assert "its loss is <lambda>" in str(apply(model)) and model.loss_function is own


def test_a_loss_of_the_instances_own_comes_back():
    from transformers.loss.loss_utils import ForCausalLMLoss

    model = make("llama")
    model.loss_function = ForCausalLMLoss
    apply(model)
    assert model.loss_function is not ForCausalLMLoss
    revert(model)
    assert vars(model)["_loss_function"] is ForCausalLMLoss


def test_mistakes_end_in_a_sentence(monkeypatch):
    with pytest.raises(TypeError, match="apply: model must be a torch.nn.Module, got str"):
        apply("Qwen/Qwen3-0.6B")
    with pytest.raises(TypeError, match="revert: .* got the class Linear"):
        revert(nn.Linear)
    with pytest.raises(ValueError, match="linear_loss=True needs loss=True"):
        apply(make("llama"), loss=False, linear_loss=True)
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.1")
    with pytest.raises(ImportError, match="must be 5.0 or newer, got 4.57.1; `pip install"):
        apply(nn.Linear(2, 2))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="apply: transformers must be installed"):
        apply(nn.Linear(2, 2))


@pytest.mark.parametrize("function", [apply, revert, mapping], ids=lambda f: f.__name__)
def test_examples(function):
    examples = doctest.DocTestFinder().find(function, globs={})
    assert sum(len(test.examples) for test in examples) >= 2
    runner = doctest.DocTestRunner()
    assert not sum(runner.run(test).failed for test in examples)


def test_transformers_is_imported_at_the_first_call():
    sources = list(Path(thunderkittens.integrations.__file__).parent.rglob("*.py"))
    assert len(sources) >= 8
    imported = set()
    for statement in (s for path in sources for s in ast.parse(path.read_text()).body):
        if isinstance(statement, ast.ImportFrom):
            imported.add(statement.module.split(".")[0])
        elif isinstance(statement, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in statement.names}
    assert "torch" in imported and not imported & {"transformers", "kernels"}
    with pytest.raises(AttributeError, match="no attribute 'vllm'"):
        thunderkittens.integrations.vllm  # noqa: B018
