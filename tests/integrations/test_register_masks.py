"""Which of transformers' masks are understood, which are torch's, and all under torch.compile."""

import math

import pytest
import torch

pytest.importorskip("transformers")

from transformers import StaticCache

from tests.integrations import models
from tests.integrations.attention import LENGTHS, agree, padded, pair, tokens
from tests.integrations.models import bound
from thunderkittens.integrations.transformers import _attention, _masks
from thunderkittens.integrations.transformers._bands import band_of


@pytest.fixture
def reasons(monkeypatch):
    """Why torch computed calls of attention."""
    found = []
    monkeypatch.setattr(_attention, "computed_by_torch", lambda op, why, gpu: found.append(why))
    return found


def hole(mask):
    mask[0, 4] = 0
    return mask


def of_blocks(mask):
    """A mask of four dimensions: the first four tokens see each other."""
    allowed = torch.ones(14, 14, dtype=torch.bool).tril()
    allowed[:4, :4] = True
    return torch.where(allowed, 0.0, torch.finfo(torch.float32).min).expand(2, 1, 14, 14)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss"])
@pytest.mark.parametrize(("change", "why"), [(hole, _masks.HOLES), (of_blocks, "a mask tensor")])
@torch.no_grad()
def test_what_is_not_understood_is_torchs_with_the_true_mask(name, change, why, reasons):
    mask, ids = change(padded("none")), tokens()
    made, expected = (model(ids, attention_mask=mask).logits for model in pair(name))
    agree(made, expected, padded("none") if mask.dim() == 4 else mask)
    assert set(reasons) == {why}


@torch.no_grad()
def test_holes_over_a_static_cache(reasons):
    """The cache has counted on by the time that a layer asks for the mask."""
    both, ids, mask = pair("llama"), tokens(), hole(padded("none"))
    kept = [StaticCache(config=model.config, max_cache_len=32) for model in both]
    for at, end in ((0, 7), (7, 12), (12, 13), (13, 14)):
        given = {"attention_mask": mask[:, :end], "position_ids": torch.arange(at, end)[None]}
        made, expected = (
            model(ids[:, at:end], past_key_values=cache, **given).logits
            for model, cache in zip(both, kept, strict=True)
        )
        agree(made, expected, mask[:, at:end])
    assert set(reasons) == {_masks.HOLES}


@pytest.mark.parametrize("first", [0, 2])
def test_cross_attention_with_padding(first, reasons):
    from transformers.masking_utils import bidirectional_mask_function

    padding = torch.ones(2, 10, dtype=torch.bool)
    padding[1, 8:], padding[0, :first] = False, False
    options = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": True}
    mask = _masks.describe(
        2, 3, 10, mask_function=bidirectional_mask_function, attention_mask=padding, **options
    )
    q, k, v = torch.randn(2, 4, 3, 16), torch.randn(2, 2, 10, 16), torch.randn(2, 2, 10, 16)
    module = torch.nn.Module()
    made, _ = _attention.attend(module, q, k, v, mask)
    expected, _ = _attention.attend(module, q, k, v, mask.dense())
    agree(made, expected)
    assert reasons == ["a mask tensor"] and not mask.dense()[1, 0, :, 8:].any()


@torch.no_grad()
def test_a_mask_function_of_ones_own_is_torchs(reasons):
    from transformers.masking_utils import create_causal_mask

    ours, _ = pair("llama")
    x, last = torch.zeros(2, 14, 64), torch.tensor([False] * 13 + [True])
    given = {"inputs_embeds": x, "attention_mask": None, "past_key_values": None}
    for name in ("or_mask_function", "and_mask_function"):
        made = create_causal_mask(ours.config, **given, **{name: lambda b, h, q, k: last[k]})
        assert made.reason == _masks.UNKNOWN
        assert torch.equal(made.dense()[0, 0, 2, -1], torch.tensor(name == "or_mask_function"))
    blocks = torch.tensor([[-1, 0, 0, 0] + [-1] * 10] * 2)
    made = create_causal_mask(ours.config, **given, block_sequence_ids=blocks)
    assert made.reason == _masks.UNKNOWN and made.dense()[0, 0, 1, 3]
    joined = create_causal_mask(ours.config, **given, allow_is_causal_skip=False)
    assert joined.dtype == torch.bool and joined.shape == (2, 1, 14, 14)


def test_dropout_and_weights(reasons):
    ours, theirs = pair("llama")
    ids = tokens()
    made = ours(ids, output_attentions=True)
    expected = theirs(ids, output_attentions=True)
    assert set(reasons) == {"output_attentions"} and len(made.attentions) == 2
    for a, b in zip(made.attentions, expected.attentions, strict=True):
        assert (a - b).abs().max() <= bound(b)
    dropping = models.make("llama", attention_dropout=0.5)
    dropping.set_attn_implementation("thunderkittens")
    reasons.clear()
    dropping(ids).logits.sum().backward()
    assert set(reasons) == {"dropout"}
    reasons.clear()
    dropping.eval()(ids)
    assert not reasons


@pytest.mark.parametrize("side", [None, "none", "left"])
@torch.no_grad()
def test_torch_compile_takes_it_whole(side, reasons):
    ours, theirs = pair("llama", head_dim=32)
    ids, mask = tokens(), None if side is None else padded(side)
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="eager", fullgraph=True)
    made = compiled(ids, attention_mask=mask, use_cache=False).logits
    agree(made, theirs(ids, attention_mask=mask).logits, mask)
    if side is not None:
        assert not reasons
        with pytest.raises(RuntimeError, match="holes"):  # nobody reads it: it is an error
            compiled(ids, attention_mask=hole(padded("none")), use_cache=False)
    torch._dynamo.reset()


@pytest.mark.parametrize("given", ["position_ids", "cu_seq_lens"])
@torch.no_grad()
def test_packed_sequences_compiled(given, reasons):
    """Who is packed with whom cannot be read there: cu_seq_lens say it, or torch has the mask."""
    ours, theirs = pair("mistral")
    ids = tokens(1, sum(LENGTHS))
    inputs = {"position_ids": torch.cat([torch.arange(n) for n in LENGTHS])[None]}
    if given == "cu_seq_lens":
        bounds = torch.tensor([0, 3, 13, 14], dtype=torch.int32)
        inputs |= {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds}
        inputs |= {"max_length_q": 10, "max_length_k": 10}
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="eager", fullgraph=True)
    made = compiled(ids, use_cache=False, **inputs).logits
    expected = [theirs(part).logits for part in ids.split(LENGTHS, dim=1)]
    agree(made, torch.cat(expected, dim=1))
    assert set(reasons) == (set() if given == "cu_seq_lens" else {_masks.PACKED})
    torch._dynamo.reset()


@torch.no_grad()
def test_a_compiled_decode_step_over_a_static_cache(reasons):
    """With the mask made beforehand, as transformers' generate does; compiled once."""
    from transformers.masking_utils import create_masks_for_generate

    ours, theirs = pair("llama", head_dim=64)
    ids, cache = tokens(2, 12), StaticCache(config=ours.config, max_cache_len=32)
    expected, compiles = theirs(ids).logits, []

    def backend(graph, example):
        compiles.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(ours, backend=backend, fullgraph=True)
    ours(ids[:, :8], past_key_values=cache)
    for at in range(8, 12):
        mask = create_masks_for_generate(
            ours.config, torch.empty(2, 1, 0), torch.ones(2, at + 1, dtype=torch.int64), cache
        )
        given = {"position_ids": torch.full((2, 1), at), "past_key_values": cache}
        made = compiled(ids[:, at : at + 1], attention_mask=mask, **given).logits
        agree(made, expected[:, at : at + 1])
    assert len(compiles) == 1 and not reasons
    torch._dynamo.reset()


def test_bands():
    """The windows that mask functions of transformers are; what is none is refused."""
    from transformers import masking_utils as m

    def sides(function):
        band = band_of(function)
        return band and (band.low, band.high)

    inf = float("inf")
    assert sides(m.causal_mask_function) == (-inf, 0)
    assert sides(m.bidirectional_mask_function) == (-inf, inf)
    assert sides(m.sliding_window_causal_mask_function(4)) == (-3, 0)
    assert sides(m.sliding_window_bidirectional_mask_function(4)) == (-4, 4)
    assert sides(lambda b, h, q, k: (k - q < 3) & (q - k <= 2)) is None  # not known: refused
    near, far = m.sliding_window_bidirectional_overlay(1), lambda b, h, q, k: k >= q + 5
    assert sides(m.or_masks(near, far)) is None  # two bands
    assert sides(m.or_masks(near, m.sliding_window_causal_mask_function(4))) == (-3, 1)
    assert sides(m.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.int64))) is None
    assert sides(lambda b, h, q, k: k % 2 == 0) is None


@pytest.mark.parametrize("window", [None, 4])
def test_packed_masks_of_versions_without_remapped_positions(window, monkeypatch):
    """As 5.17 joins them: the mask, then the sequences. Joined otherwise they are not known."""
    from transformers import masking_utils as m

    monkeypatch.delattr(m, "remap_positions_for_packed_sequence", raising=False)
    _masks._codes.cache_clear()
    numbers = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))[None]
    made = m.causal_mask_function
    if window is not None:
        made = m.sliding_window_causal_mask_function(window)
    same = m.packed_sequence_mask_function(numbers)
    try:
        mask = _masks.describe(1, 14, 14, mask_function=m.and_masks(made, same))
        other = _masks.describe(1, 14, 14, mask_function=m.and_masks(same, m.and_masks(made)))
    finally:
        _masks._codes.cache_clear()
    assert mask.reason is None and torch.equal(mask.sequences, numbers)
    assert (mask.band.low, mask.band.high) == (1 - (window or math.inf), 0)
    assert other.reason == _masks.UNKNOWN
    distance = torch.arange(14)[:, None] - torch.arange(14)
    seen = (distance >= 0) & (distance < (window or 14)) & (numbers[0][:, None] == numbers[0])
    assert torch.equal(mask.dense().expand(1, 1, 14, 14)[0, 0], seen)


def test_a_mask_of_other_sizes_is_refused():
    ours, _ = pair("llama")
    mask = _masks.describe(2, 14, 14)
    layer = ours.model.layers[0].self_attn
    q = torch.zeros(2, 4, 13, 16)
    with pytest.raises(ValueError, match="the mask is of 2 × 14 rows and 14 keys, got"):
        _attention.attend(layer, q, q[:, :2], q[:, :2], mask)
