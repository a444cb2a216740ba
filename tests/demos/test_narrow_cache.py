"""Caches of float8_e4m3fn: their scales, what is in them, and the texts that come of it.

In float64, where two ways to the same key differ by so little that hardly any of them lies between
two numbers of e4m3 for one and not for the other.
"""

import copy
import math

import pytest
import torch

pytest.importorskip("transformers")

from batch import Batch
from llamas import KINDS, PROMPTS, VOCABULARY, made
from models import cached_attention
from models.cache import Cache
from models.cache_scales import scales_of
from models.decoding import Decoder, full_logits
from rich.console import Console
from test_decoding import columns, forced

FP8 = torch.float8_e4m3fn
TIGHT = 1e-11  # of the logits' size: 10,000 roundings of float64's 2^-53
HALF_STEP = 2.0**-4  # of a number of 4 significant bits, at most


def exact(kind):
    return copy.deepcopy(made(kind)[2]).double()


class Rounded(cached_attention.Packed):
    """Attention without a cache, to keys and values that are rounded in the open.

    To 4 significant bits, below 2^-6 of the scale to multiples of 2^-9.
    """

    def __call__(self, layer, q, k, v):
        scales = self.scales[layer]
        turned = self.turn(k)
        k, v = (
            rounded(t / scales[name][:, None]) * scales[name][:, None]
            for t, name in ((turned, "k_scale"), (v, "v_scale"))
        )
        q = self.turn(q)
        group, o = q.shape[1] // k.shape[1], torch.empty_like(q)
        for begin, end in zip(self.bounds, self.bounds[1:], strict=False):
            keys, values = (t[begin:end].repeat_interleave(group, 1) for t in (k, v))
            scores = torch.einsum("ihd,jhd->hij", q[begin:end], keys) / math.sqrt(q.shape[2])
            n, (left, _) = end - begin, self.windows[layer] or (end, 0)
            seen = torch.ones(n, n, dtype=torch.bool).tril().triu(-left)
            weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
            o[begin:end] = torch.einsum("hij,jhd->ihd", weights, values)
        return o

    def turn(self, x):
        positions = torch.cat([torch.arange(int(n)) for n in self.lengths])
        cos, sin = (table[positions, None].double() for table in (self.cos, self.sin))
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def rounded(x):
    assert x.abs().max() <= 464, "it would be cut off at 448"
    _, exponent = torch.frexp(x)
    step = torch.ldexp(torch.ones_like(x), (exponent - 4).clamp(min=-9))
    return (x / step).round() * step


def reference(model, texts):
    """Logits of all tokens, of keys and values that are rounded to the cache's."""
    attend = Rounded(model.config, [len(text) for text in texts], model.device)
    attend.scales = scales_of(model)
    logits = model(torch.tensor([t for text in texts for t in text]), attend)
    return logits.split([len(text) for text in texts])


@pytest.mark.parametrize("page", [None, 4])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_steps_are_the_full_forward_of_rounded_keys_and_values(kind, page, monkeypatch):
    """Prompts and 18 steps; and as far from the unrounded ones as the roundings can bring them.

    Of these there are two a layer, of keys and of values, by up to 2^-4 of their size, uniformly:
    by 2^-4 / √3 as a root mean square. If they are independent, the hidden state moves by √(2 L) of
    that, and a logit by that share of their spread. Five standard deviations, of 5,454 logits.
    """
    ours = exact(kind)
    texts = torch.randint(VOCABULARY, (3, 18)).tolist()
    seen = forced(monkeypatch, texts)
    list(Decoder(ours, 3, 40, ends=(), page=page, narrow=True).generate(PROMPTS, 18))
    whole = [prompt + text for prompt, text in zip(PROMPTS, texts, strict=True)]
    both = zip(reference(ours, whole), full_logits(ours, whole), strict=True)
    for row, (expected, wide) in enumerate(both):
        behind = slice(len(PROMPTS[row]) - 1, -1)
        expected, wide = expected[behind], wide[behind]
        found = torch.stack([logits[row] for logits in seen])
        assert (found - expected).abs().max() <= TIGHT * expected.abs().max()
        spread = (wide - wide.mean(-1, keepdim=True)).square().mean().sqrt()
        limit = 5 * math.sqrt(2 * ours.config.num_hidden_layers / 3) * HALF_STEP * spread
        assert 0 < (found - wide).abs().max() <= limit


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_cache_holds_what_as_held_says(kind):
    """Bit by bit, and within half a step of the unrounded, none cut off."""
    ours = exact(kind)
    narrow, wide = (Decoder(ours, 1, 12, narrow=n) for n in (True, False))
    for decoder in (narrow, wide):
        decoder.prefill(PROMPTS[:1])
    held = narrow.cache.span(0, 0, 12)
    for found, t, scale in zip(
        held, wide.cache.layers[0], scales_of(ours)[0].values(), strict=True
    ):
        least = scale[:, None] * 2.0**-10  # half a step where steps do not get smaller any more
        assert ((found - t).abs() <= torch.maximum(t.abs() * HALF_STEP, least)).all()
    for found, want in zip(held, narrow.cache.as_held(0, *wide.cache.layers[0]), strict=True):
        assert torch.equal(found, want)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_largest_that_weights_can_make_is_held(kind):
    """The norm of a row that points where a row of the projection does gives the most there is.

    By weights of the norm, and of a bias, that count for more than the factor 2 between scales.
    """
    ours = exact(kind)
    block = ours.blocks[0]
    block.norm.weight[3] *= 30
    if block.qkv.bias is not None:
        block.qkv.bias *= 1000
    first, scales = sum(block.heads[:2]) * block.dim, scales_of(ours)[0]
    x, _ = block.norm(block.qkv.weight[first:] * block.norm.weight, None)
    v = (x * block.qkv.weight[first:]).sum(1).abs()  # of row i element i
    if block.qkv.bias is not None:
        v += block.qkv.bias[first:].abs()
    most = v.view(block.heads[2], -1).amax(1) / scales["v_scale"]
    assert ((most > 223) & (most < 448)).all()  # 223: of the norm's epsilon
    for scale in scales.values():
        assert torch.equal(torch.frexp(scale)[0], torch.full_like(scale, 0.5))


@torch.no_grad()
def test_pairs_of_keys_are_held_at_any_angle():
    """Both elements as large as they can be, 400, are 566 and 0 at an eighth of a circle."""
    ours = exact("mistral")
    block = ours.blocks[0]
    first, half = block.heads[0] * block.dim, block.dim // 2
    row = torch.randn(block.qkv.weight.shape[1]).double()
    row *= 400 / (row * block.norm.weight).norm() / math.sqrt(len(row))
    block.qkv.weight[first:] = 0
    block.qkv.weight[[first, first + half]] = row
    x, _ = block.norm((row * block.norm.weight)[None], None)
    k = block.qkv(x)[0, [first, first + half]]
    assert torch.allclose(k, torch.tensor([400.0, 400.0]).double(), rtol=1e-3)
    assert float(k.norm()) / float(scales_of(ours)[0]["k_scale"][0]) < 448


@torch.no_grad()
def test_a_norm_of_heads_bounds_their_keys():
    ours = exact("qwen3")
    block = ours.blocks[0]
    block.k_norm.weight[5] = -100
    keys = torch.zeros(1, 1, block.dim).double()
    keys[..., 5] = 1
    longest = block.k_norm(keys).abs().max() / scales_of(ours)[0]["k_scale"]
    assert ((longest > 223 / math.sqrt(2)) & (longest < 448)).all()


@torch.no_grad()
def test_weights_of_zero_have_a_scale_of_one():
    ours = exact("qwen2")
    ours.blocks[0].qkv.weight.zero_()
    ours.blocks[0].qkv.bias.zero_()
    for scale in scales_of(ours)[0].values():
        assert torch.equal(scale, torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_bytes(dtype):
    """A byte an element, whatever the model's dtype, also of what a step has to move."""
    ours = copy.deepcopy(made("llama")[2]).to(dtype)
    elements = 2 * 2 * 40 * 2 * 16  # layers, k and v, tokens, key heads, head dimension
    for page in (None, 4):
        narrow, wide = (Decoder(ours, 1, 40, page=page, narrow=n) for n in (True, False))
        assert (narrow.cache.nbytes, wide.cache.nbytes) == (elements, elements * dtype.itemsize)
        saved = wide.bytes_of_step([9]) - narrow.bytes_of_step([9])
        assert saved == 2 * 2 * (9 + 1) * 2 * 16 * (dtype.itemsize - 1)


@torch.no_grad()
def test_a_row_and_its_views_share_scales():
    ours = made("llama")[2]
    cache = Cache.paged(ours, 3, 40, 4, narrow=True)
    for view in (cache.rows(1, 2), cache.in_pages([3, 5])):
        assert view.scales is cache.scales and view.narrow and view.dtype == torch.float32
    assert cache.layers[0][0].dtype == FP8
    assert Cache.static(ours, 3, 40).scales == [{}, {}]


def test_greedy_texts_go_on_alone_as_together():
    ours = exact("mistral")
    together = columns(Decoder(ours, 3, 31, narrow=True).generate(PROMPTS, 20))
    for row, prompt in enumerate(PROMPTS):
        alone = Decoder(ours, 1, 31, page=4, narrow=True).generate([prompt], 20)
        assert columns(alone) == [together[row]]


@pytest.mark.parametrize("sizes", [[12], [5, 7], [1] * 12], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_in_chunks_is_the_prompt_whole(kind, sizes):
    ours = exact(kind)
    decoder = Decoder(ours, 1, 12, narrow=True)
    expected = decoder.prefill(PROMPTS[:1])
    batch = Batch(ours, 2, 40, 4, 20, narrow=True)
    prompt = batch.begin(PROMPTS[0], [17, 3, 5])
    *_, logits = [batch.read(prompt, size) for size in sizes]
    assert (logits - expected).abs().max() <= TIGHT * expected.abs().max()
    for layer in range(2):
        both = zip(prompt.cache.span(layer, 0, 12), decoder.cache.span(layer, 0, 12), strict=True)
        assert all(torch.equal(found, whole) for found, whole in both)


def test_requests_of_a_server_get_what_they_get_alone():
    """In chunks of 5, over too few pages for all at once."""
    engine = pytest.importorskip("engine", reason="demos/serve needs its packages")
    request = pytest.importorskip("request")
    ours = exact("llama")
    server = engine.Engine(Batch(ours, 3, 60, 4, 20, narrow=True), 100, (), chunk=5)
    asked = [(prompt, []) for prompt in (*PROMPTS, PROMPTS[0][::-1], [5] * 30)]
    for prompt, tokens in asked:
        server.submit(request.Request(prompt, 20, on_token=tokens.append))
    while server.busy:
        server.turn()
    for prompt, tokens in asked:
        alone = Decoder(ours, 1, 60, ends=(), narrow=True).generate([prompt], 20)
        assert columns(alone) == [tokens]


@pytest.mark.parametrize("dtype", ["auto", "fp8"])
def test_serve_has_the_cache_that_is_asked_for(dtype):
    serve = pytest.importorskip("serve", reason="demos/serve needs its packages")
    arguments = ["--random", "tiny", "--device", "cpu", "--batch", "2", "--cache-dtype", dtype]
    options = serve.parse_options([*arguments, "--context", "128"])
    config, _, _ = serve.read_config(options)
    cache = serve.make_engine(options, config, Console(quiet=True)).batch.cache
    assert cache.narrow == (dtype == "fp8")
    assert cache.layers[0][0].dtype == (FP8 if cache.narrow else torch.float32)
