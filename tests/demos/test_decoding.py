"""Decoding: a step over the cache is the full forward, and the lengths on the device are right."""

import threading

import pytest
import torch

pytest.importorskip("transformers")

from llamas import KINDS, PROMPTS, VOCABULARY, eager_greedy, eager_logits, loaded, made
from models import decoding
from models.decoding import Decoder, DecodingError, full_logits
from models.sampling import Sampling

from tests.integrations.models import bound


def columns(steps):
    """The tokens of each row, without what comes behind their ends."""
    return [[t for t in row if t is not None] for row in zip(*steps, strict=True)]


def forced(monkeypatch, texts):
    """Makes each row's next tokens those of its text, whatever the logits; these are noted."""
    seen = []

    def choose(logits, sampling, uniform):
        seen.append(logits.clone())
        return torch.tensor([text[len(seen) - 1] for text in texts], device=logits.device)

    monkeypatch.setattr(decoding, "choose", choose)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_cached_step_is_the_full_forward_at_every_position(kind, monkeypatch):
    """Rows of 1, 3 and 12 tokens go on by 18, past the window of 8."""
    eager, _, ours = made(kind)
    texts = torch.randint(VOCABULARY, (3, 18)).tolist()
    seen = forced(monkeypatch, texts)
    list(Decoder(ours, 3, 40, ends=()).generate(PROMPTS, 18))
    for row, (prompt, text) in enumerate(zip(PROMPTS, texts, strict=True)):
        expected = eager_logits(eager, prompt + text)[len(prompt) - 1 : -1]
        made_logits = torch.stack([logits[row] for logits in seen])
        assert (made_logits - expected).abs().max() <= bound(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_eagers(kind):
    eager, _, ours = made(kind)
    tokens = columns(Decoder(ours, 3, 31).generate(PROMPTS, 20))
    assert tokens == [eager_greedy(eager, prompt, 20) for prompt in PROMPTS]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, top_k=20, top_p=0.9)], ids=str)
def test_a_row_is_what_it_is_alone(sampling):
    _, _, ours = made("qwen3")
    together = columns(Decoder(ours, 3, 31, sampling).generate(PROMPTS, 20, seed=5))
    for row, prompt in enumerate(PROMPTS):
        alone = Decoder(ours, 1, 31, sampling).generate([prompt], 20, seed=5 + row)
        assert columns(alone) == [together[row]]


@pytest.mark.parametrize("kind", KINDS)
def test_pages_give_what_one_piece_gives(kind):
    """Of 4 tokens, so that every row crosses from page to page, in any order of the memory's."""
    _, _, ours = made(kind)
    for sampling in (Sampling(), Sampling(1.0, top_k=20, top_p=0.9)):
        whole = list(Decoder(ours, 3, 31, sampling).generate(PROMPTS, 20, seed=5))
        decoder = Decoder(ours, 3, 31, sampling, page=4)
        table = decoder.cache.table
        assert table.shape == (3, 8) and decoder.cache.shape == (24, 4)
        for order in (torch.arange(24), torch.randperm(24)):
            with torch.inference_mode():
                table.copy_(order.view(3, 8))
            assert list(decoder.generate(PROMPTS, 20, seed=5)) == whole


def test_a_seed_is_reproducible():
    _, _, ours = made("llama")
    decoder = Decoder(ours, 3, 31, Sampling(1.5))
    one, again, other = (columns(decoder.generate(PROMPTS, 20, seed=s)) for s in (3, 3, 4))
    assert one == again != other


def test_a_row_that_has_ended_gives_nothing_and_is_left_alone():
    """Its length is 0 from then on, its cache as it was, and other rows are what they were."""
    _, _, ours = made("llama")
    free = columns(Decoder(ours, 3, 31, ends=()).generate(PROMPTS, 20))
    end = next(t for t in free[0] if t not in free[1] + free[2])  # row 0 alone meets it
    at = free[0].index(end)
    decoder = Decoder(ours, 3, 31, ends=[end])
    got, kept = [], None
    for count, tokens in enumerate(decoder.generate(PROMPTS, 20)):
        got.append(tokens)
        if count > at:
            assert decoder.lengths.tolist()[0] == 0 and decoder.active.tolist() == [0, 1, 1]
            row = torch.stack([torch.stack(layer)[:, 0] for layer in decoder.cache.layers])
            kept = row.clone() if kept is None else kept
            assert torch.equal(kept.nan_to_num(), row.nan_to_num())
    assert columns(got) == [free[0][: at + 1], *free[1:]]
    assert [tokens[0] for tokens in got[at + 1 :]] == [None] * (19 - at)


def test_it_is_over_when_all_rows_have_ended():
    _, _, ours = made("llama")
    ends = sorted({t for row in columns(Decoder(ours, 3, 31).generate(PROMPTS, 3)) for t in row})
    steps = list(Decoder(ours, 3, 31, ends=ends).generate(PROMPTS, 20))
    assert len(steps) == 1 and all(token in ends for token in steps[0])


def test_an_empty_prompt_is_a_row_that_never_began():
    _, _, ours = made("mistral")
    decoder = Decoder(ours, 4, 31)
    steps = list(decoder.generate([[], *PROMPTS], 20))
    assert all(tokens[0] is None for tokens in steps)
    assert columns(steps)[1:] == columns(Decoder(ours, 3, 31).generate(PROMPTS, 20))
    for tokens in decoder.generate([[], *PROMPTS], 5):
        assert tokens[0] is None and decoder.lengths[0] == 0


def test_prompt_and_limit_have_to_fit_the_cache():
    _, _, ours = made("llama")
    decoder = Decoder(ours, 1, 20, ends=())
    fitting = columns(decoder.generate([PROMPTS[0]], 9))  # 12 and 9, of which the last needs none
    assert fitting == [eager_greedy(made("llama")[0], PROMPTS[0], 9)]
    with pytest.raises(DecodingError, match="12 tokens and 10 more do not fit a cache of 20"):
        next(decoder.generate([PROMPTS[0]], 10))


@pytest.mark.parametrize(
    ("prompts", "limit", "message"),
    [
        ([[1]], 5, "there must be 2 prompts, got 1"),
        ([[], []], 5, "all prompts are empty"),
        ([[1], [2]], 0, "the limit must be at least 1"),
        ([[1], [2, VOCABULARY]], 5, "prompt 1: its tokens must be in 0 … 100"),
        ([[1], [2, -1]], 5, "prompt 1: its tokens must be in 0 … 100"),
    ],
)
def test_prompts_that_are_refused(prompts, limit, message):
    _, _, ours = made("llama")
    with pytest.raises(DecodingError, match=message):
        next(Decoder(ours, 2, 20).generate(prompts, limit))


@pytest.mark.parametrize("how", ["close", "interrupt"])
def test_what_is_interrupted_leaves_nothing_behind(how):
    _, _, ours = made("llama")
    decoder, threads = Decoder(ours, 3, 31), threading.active_count()
    expected = columns(decoder.generate(PROMPTS, 20))
    stream = decoder.generate(PROMPTS, 20)
    next(stream), next(stream)
    if how == "close":
        stream.close()
    else:
        with pytest.raises(KeyboardInterrupt):
            stream.throw(KeyboardInterrupt)
    assert decoder.lengths.tolist() == decoder.active.tolist() == [0, 0, 0]
    assert threading.active_count() == threads
    assert columns(decoder.generate(PROMPTS, 20)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_a_step(kind):
    """Counted from the model's tensors: 3 rows, of which one has ended."""
    _, _, ours = made(kind)
    decoder, config = Decoder(ours, 3, 40), ours.config
    weights = sum(p.nbytes for p in ours.parameters())
    embedding = ours.embedding.weight
    if kind != "qwen2":  # whose embedding is the head
        weights += 3 * embedding[0].nbytes - embedding.nbytes
    keys, _ = decoder.cache.layers[0]
    of_token = 2 * keys[0, 0].nbytes
    visible = {"mistral": (8 + 5) * 2, "qwen2": (8 + 5) + (20 + 5)}.get(kind, (20 + 5) * 2)
    written = 2 * config.num_hidden_layers
    assert decoder.bytes_of_step([20, 0, 5]) == weights + of_token * (visible + written)


def test_progress_counts_the_layers():
    _, _, ours = made("llama")
    layers = []
    next(Decoder(ours, 3, 31).generate(PROMPTS, 2, on_layer=layers.append))
    assert layers == [0, 1]


@pytest.fixture(scope="module")
def on_gpu():
    """A model whose attention the kernels take, in bfloat16, and the same in float32."""
    _, folder, _ = made("qwen3", head_dim=64)
    return loaded(folder, torch.bfloat16, "cuda"), loaded(folder, torch.float32, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("page", [None, 16])
def test_a_graphs_steps_are_those_without(on_gpu, page, narrow):
    """One graph serves all lengths, batch after batch, with rows that end and never begin."""
    ours, _ = on_gpu
    for sampling in (Sampling(), Sampling(1.0, top_k=20, top_p=0.9)):
        ends = [7, 8, 9, 10]
        options = {"ends": ends, "page": page, "narrow": narrow}
        captured = Decoder(ours, 4, 60, sampling, **options)
        plain = Decoder(ours, 4, 60, sampling, **options, graph=False)
        for seed in range(4):
            lengths = torch.randint(40, (4,)).tolist()
            lengths[seed] = 0
            prompts = [torch.randint(VOCABULARY, (n,)).tolist() for n in lengths]
            if not any(prompts):
                continue
            one, other = (list(d.generate(prompts, 21, seed)) for d in (captured, plain))
            assert one == other


@pytest.mark.gpu
def test_cached_steps_in_bfloat16_are_the_full_forward(on_gpu, monkeypatch):
    """In bfloat16 both round; so they are held to float32's, with 16-bit roundings in its bound."""
    ours, exact = on_gpu
    texts = torch.randint(VOCABULARY, (3, 18)).tolist()
    seen = forced(monkeypatch, texts)
    list(Decoder(ours, 3, 40, ends=(), graph=False).generate(PROMPTS, 18))
    whole = full_logits(exact, [p + t for p, t in zip(PROMPTS, texts, strict=True)])
    for row, (prompt, expected) in enumerate(zip(PROMPTS, whole, strict=True)):
        expected = expected[len(prompt) - 1 : -1]
        made_logits = torch.stack([logits[row] for logits in seen]).float()
        # 21 roundings a block to 8 bits, and 6 of weights' that are rounded too; three deviations
        limit = 3 * ((27 * 2 + 5) ** 0.5) * 2**-9 * float(expected.abs().max())
        assert (made_logits - expected).abs().max() <= limit


@pytest.mark.gpu
def test_a_long_context_on_the_gpu(on_gpu):
    """8,192 positions: the step's logits behind 8,170 tokens are those of a forward over them."""
    ours, _ = on_gpu
    prompt = torch.randint(VOCABULARY, (8170,)).tolist()
    decoder = Decoder(ours, 2, 8192, ends=())
    rows = columns(decoder.generate([prompt, prompt[:100]], 20))
    for text, row in ((prompt, rows[0]), (prompt[:100], rows[1])):
        (logits,) = full_logits(ours, [text + row])
        behind = logits[len(text) - 1 : -1].float()
        chosen = behind.gather(1, torch.tensor(row, device="cuda")[:, None])
        spread = behind.std()
        assert (behind.amax(1, keepdim=True) - chosen).max() <= 0.1 * spread


@pytest.mark.gpu
def test_interruption_waits_for_the_device(on_gpu):
    ours, _ = on_gpu
    decoder = Decoder(ours, 3, 60)
    stream = decoder.generate(PROMPTS, 40)
    next(stream)
    stream.close()
    assert torch.cuda.current_stream().query()
    assert decoder.lengths.tolist() == [0, 0, 0]
