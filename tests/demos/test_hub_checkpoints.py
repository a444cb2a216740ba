"""Folders as the hub has them, written by transformers: generate and serve say what it says."""

import asyncio
import json
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("httpx")

import httpx
import llm
import serve
import transformers
from app import Service, make_app
from llamas import LLAMA3
from models import checkpoint, llama_config
from models.llama_command_line import read_config
from rich.console import Console
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

SIZES = {
    "hidden_size": 72,
    "intermediate_size": 100,
    "num_hidden_layers": 3,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "pad_token_id": None,
    "eos_token_id": None,
}
KINDS = {
    "Llama": {
        "rope_parameters": LLAMA3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 20,
    },
    "Qwen2": {"tie_word_embeddings": True, "num_attention_heads": 3, "num_key_value_heads": 1},
    "Qwen3": {"num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 32},
    "Mistral": {
        "sliding_window": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
    },
}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
PROMPT, TOKENS = "def add_3_4(x):\n    return x", 24


def with_special_tokens(tokenizer: Tokenizer) -> transformers.PreTrainedTokenizerFast:
    """The tests' tokenizer with a token before each text, and those of a chat."""
    own = Tokenizer.from_str(tokenizer.to_str())
    own.add_special_tokens(SPECIAL)
    begin = ("<|begin|>", own.token_to_id("<|begin|>"))
    own.post_processor = TemplateProcessing(single="<|begin|> $A", special_tokens=[begin])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, bos_token="<|begin|>", eos_token="<|end|>"
    )
    fast.chat_template = TEMPLATE
    return fast


def theirs(folder, prompt: torch.Tensor) -> list[int]:
    """What transformers goes on with, as the folder's generation_config.json says."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    options = {"max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0}
    return model.generate(prompt, **options)[0, prompt.shape[1] :].tolist()


@pytest.fixture(scope="module", params=[*KINDS, "Llama in bfloat16"])
def folder(request, tokenizer, tmp_path_factory):
    """A checkpoint in several files, whose text ends by the second of two tokens that end one."""
    kind, _, dtype = request.param.partition(" in ")
    fast = with_special_tokens(tokenizer)
    sizes = SIZES | KINDS[kind] | {"vocab_size": len(fast)}
    config = getattr(transformers, f"{kind}Config")(**sizes)
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    if dtype:
        model = model.to(torch.bfloat16)
    path = tmp_path_factory.mktemp("hub") / kind
    model.save_pretrained(path, max_shard_size="90KB")
    fast.save_pretrained(path)
    whole = theirs(path, fast(PROMPT, return_tensors="pt").input_ids)
    last = next(n for n in range(9, TOKENS) if whole[n] not in whole[:n])
    absent = next(token for token in range(len(fast)) if token not in whole)
    ends = {"eos_token_id": [absent, whole[last]]}
    (path / "generation_config.json").write_text(json.dumps(ends))
    return SimpleNamespace(path=path, tokenizer=fast, last=last)


def printed_by(folder, capsys, *options) -> str:
    """What generate prints for a prompt, up to its figures."""
    arguments = ["--model", str(folder.path), "--temperature", "0", "--device", "cpu"]
    assert llm.main([*arguments, "--tokens", str(TOKENS), *options]) == 0
    return capsys.readouterr().out.split("\nthunderkittens: first")[0].split("\n", 1)[1]


def visible(text: str) -> str:
    """Without what the terminal's library changes: tabs, controls, and the end of half a letter."""
    return "".join(c for c in text if c.isprintable() and c not in " \ufffd")


def test_the_folder_is_as_the_hub_has_it(folder):
    names = {file.name for file in folder.path.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors.index.json"} <= names
    assert {"tokenizer.json", "tokenizer_config.json"} <= names
    assert sum(name.endswith(".safetensors") for name in names) > 2


@pytest.mark.parametrize("cache", ["static", "paged"])
def test_generate_writes_transformers_text(folder, cache, capsys):
    prompt = folder.tokenizer(PROMPT, return_tensors="pt").input_ids
    tokens = theirs(folder.path, prompt)
    assert len(tokens) == folder.last + 1 < TOKENS  # ended by the second of the two
    text = folder.tokenizer.decode(tokens, skip_special_tokens=True)
    printed = printed_by(folder, capsys, "--prompt", PROMPT, "--cache", cache)
    assert visible(printed) == visible(PROMPT + text)


def test_generate_chats_by_the_template(folder, capsys):
    said = [{"role": "user", "content": "x + 7"}]
    options = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
    prompt = folder.tokenizer.apply_chat_template(said, **options).input_ids
    text = folder.tokenizer.decode(theirs(folder.path, prompt), skip_special_tokens=True)
    printed = printed_by(folder, capsys, "--chat", "--prompt", "x + 7")
    assert visible(printed) == visible(text)


def test_serve_answers_transformers_text(folder):
    """Beside others, with its prompt read in chunks of 5 tokens; the end is not in the text."""
    prompts = [PROMPT, "x", PROMPT * 3]
    wanted = []
    for prompt in prompts:
        tokens = theirs(folder.path, folder.tokenizer(prompt, return_tensors="pt").input_ids)
        ends = llama_config.read_config(folder.path)[0].ends
        stopped = tokens[-1] in ends
        text = folder.tokenizer.decode(tokens[:-1] if stopped else tokens, skip_special_tokens=True)
        wanted.append((text, "stop" if stopped else "length", len(tokens)))
    options = serve.parse_options(
        ["--model", str(folder.path), "--device", "cpu", "--batch", "2", "--prefill-chunk", "5"]
    )
    config, _, _ = read_config(options)
    engine = serve.make_engine(options, config, Console(quiet=True))
    tokenizer = checkpoint.load_tokenizer(folder.path, config)
    app = make_app(engine, Service("hub", tokenizer, 400, 400, 1 << 20))
    engine.start()

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://hub") as client:
            body = {"max_tokens": TOKENS, "temperature": 0}
            posts = [client.post("/v1/completions", json=body | {"prompt": p}) for p in prompts]
            return await asyncio.wait_for(asyncio.gather(*posts), 60)

    try:
        answers = asyncio.run(ask())
    finally:
        engine.close(0)
        engine.join()
    for answer, (text, reason, count) in zip(answers, wanted, strict=True):
        choice = answer.json()["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (text, reason)
        assert answer.json()["usage"]["completion_tokens"] == count
