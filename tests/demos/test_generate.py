"""The generate program as a user runs it, on the checkpoint that ships with the repository."""

import re
import xml.etree.ElementTree

import generate as program
import pytest
import torch
from models import checkpoint
from models.gpt2 import GPT2, THUNDERKITTENS_OPS, Config, Ops

import thunderkittens

SHIPPED = program.DEFAULT_CHECKPOINT
PROGRAM = "generate/generate.py"
TORCH = ("--backend", "torch")  # else, without a GPU, --compare is of the simulator


def test_the_shipped_checkpoint_is_sound_and_small():
    files = [file for file in SHIPPED.iterdir() if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 10e6
    assert {file.name for file in files} == {"config.json", "model.safetensors", "tokenizer.json"}
    model = checkpoint.load(SHIPPED)
    tokenizer = checkpoint.load_tokenizer(SHIPPED, model.config)
    text = "class Lion:\n    '''Brüllt – 吼.'''\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_it_streams_text_and_says_who_served_each_op(run_program):
    result = run_program(PROGRAM, "--prompt", "import os\n", "--tokens", 24)
    assert result.returncode == 0, result.stderr
    assert "import os\n" in result.stdout and "\x1b" not in result.stdout
    assert re.search(r"prefill [\d.]+ ms, then [\d.]+ tokens/s", result.stdout)
    for op in ("layer_norm", "attention"):
        assert re.search(rf"^{op}: (torch|cuda) \(.+\)", result.stdout, re.MULTILINE)


def test_compare_passes_in_float32(run_program):
    options = ("--dtype", "float32", "--backend", "torch")
    result = run_program(PROGRAM, "--compare", "--tokens", 40, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"tokens: (\d+) of \1 equal", result.stdout)
    assert "compare: equal\n" in result.stdout


def test_compare_passes_with_the_kernels_in_the_simulator(capsys):
    try:
        with thunderkittens.backend("simulator"):
            pass
    except RuntimeError as error:
        pytest.skip(str(error))
    arguments = ["--backend", "simulator", "--tokens", "4", "--device", "cpu", "--compare"]
    assert program.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "layer_norm: simulator" in printed and "compare: equal" in printed


@pytest.mark.parametrize("built", [True, False])
def test_compare_on_the_cpu_says_what_it_compares(built, monkeypatch, capsys):
    """The kernels, in the simulator; or, without it, that there are none."""
    if built and (missing := program.why_missing("simulator")):
        pytest.skip(missing)
    if not built:
        sentence = {"simulator": "there is no simulator"}
        monkeypatch.setattr(program, "why_missing", lambda backend: sentence.get(backend, ""))
    assert program.main(["--compare", "--tokens", "3", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert ("bfloat16 on cpu" in printed) is built and "compare: equal" in printed
    for op in ("layer_norm", "attention"):
        assert (f"{op}: simulator" in printed) is built
    assert ("no kernel has run, both sides are torch's ops" in printed) is not built


def test_a_picture_of_what_is_printed(tmp_path, capsys):
    path = tmp_path / "picture.svg"
    options = ["--tokens", "8", "--device", "cpu", "--prompt", "def a_prompt():"]
    assert program.main([*options, "--svg", str(path)]) == 0
    tree = xml.etree.ElementTree.parse(path)
    words = " ".join(tree.getroot().itertext()).replace("\xa0", " ")
    assert (
        "a_prompt" in words
        and "tokens/s" in words
        and "url(" not in path.read_text().split("</style>")[0]
    )
    assert program.main([*options, "--svg", str(tmp_path / "nowhere" / "p.svg")]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_compare_passes_in_16_bit(dtype, capsys):
    arguments = ["--compare", "--tokens", "40", "--dtype", dtype, "--device", "cpu", *TORCH]
    assert program.main(arguments) == 0
    assert re.search(r"compare: equal", capsys.readouterr().out)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("fault", ["attention", "layer_norm", "nan"])
def test_compare_fails_on_a_wrong_op(monkeypatch, capsys, dtype, fault):
    def negative_attention(*tensors, **options):
        return THUNDERKITTENS_OPS.attention(*tensors, **options) * -2

    def nan_attention(*tensors, **options):
        return THUNDERKITTENS_OPS.attention(*tensors, **options) * torch.nan

    class ShiftedNorm(THUNDERKITTENS_OPS.layer_norm):
        def forward(self, x):
            return super().forward(x).roll(1, -1)

    wrong = {
        "attention": THUNDERKITTENS_OPS._replace(attention=negative_attention),
        "nan": THUNDERKITTENS_OPS._replace(attention=nan_attention),
        "layer_norm": THUNDERKITTENS_OPS._replace(layer_norm=ShiftedNorm),
    }
    monkeypatch.setattr(program, "THUNDERKITTENS_OPS", wrong[fault])
    arguments = ["--compare", "--tokens", "24", "--dtype", dtype, "--device", "cpu", *TORCH]
    assert program.main(arguments) == 1
    assert re.search("compare: (different|the logits are not finite)", capsys.readouterr().out)


def fabricated(tokens, logits):
    result = program.Result()
    result.tokens, result.logits = tokens, [torch.tensor(row) for row in logits]
    return result


@pytest.mark.parametrize(
    ("dtype", "gap", "agrees"),
    [
        (torch.bfloat16, 0.01, True),
        (torch.bfloat16, 2.0, False),
        (torch.float16, 0.001, True),
        (torch.float16, 0.3, False),
        (torch.float32, 1e-7, False),
    ],
)
def test_only_a_tie_in_16_bit_is_excused(tokenizer, dtype, gap, agrees):
    model = GPT2(Config(vocab_size=4, n_positions=8, n_embd=32, n_layer=2, n_head=1)).to(dtype)
    ours = fabricated([2, 0], [[0.0, 0.0, 5.0, -3.0], [4.0 + gap, 4.0, 0.0, -4.0]])
    theirs = fabricated([2, 1], [[0.0, 0.0, 5.0, -3.0], [4.0, 4.0 + gap, 0.0, -4.0]])
    assert program.compare(ours, theirs, model, tokenizer) is agrees


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layers", [2, 12])
@torch.no_grad()
def test_the_tie_bound_covers_rounding_and_little_more(dtype, layers):
    """Another order of the same sums moves gaps by less than the bound, by more than a 30th."""

    def attention(q, k, v, *, causal):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.mT * q.size(-1) ** -0.5).float()
        keep = torch.ones_like(scores, dtype=torch.bool).tril(k.size(2) - q.size(2))
        weights = scores.masked_fill(~keep, -torch.inf).softmax(-1).to(v.dtype)
        return (weights @ v).transpose(1, 2)

    class Norm(torch.nn.LayerNorm):
        def forward(self, x):
            centred = x - x.mean(-1, keepdim=True)
            scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)
            return centred * scale * self.weight + self.bias

    config = Config(vocab_size=500, n_positions=64, n_embd=128, n_layer=layers, n_head=2)
    generator = torch.Generator().manual_seed(0)
    ours = GPT2(config)
    ours.initialize(generator)
    for parameter in ours.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    theirs = GPT2(config, Ops(Norm, attention))
    theirs.load_state_dict(ours.state_dict())
    tokens = torch.randint(500, (4, 64), generator=generator)
    a, b = (model.to(dtype)(tokens).float() for model in (ours, theirs))
    first, second = a.topk(2).indices.unbind(-1)
    gaps = [
        logits.gather(-1, first[..., None]) - logits.gather(-1, second[..., None])
        for logits in (a, b)
    ]
    moved = float((gaps[0] - gaps[1]).abs().max())
    bound = program.tie_bound(a[0, -1], dtype, ours)
    assert bound / 30 < moved < bound


def test_a_seed_is_reproducible(capsys):
    texts = []
    for seed in (3, 3, 4):
        assert program.main(["--tokens", "24", "--seed", str(seed), "--device", "cpu"]) == 0
        texts.append(capsys.readouterr().out.split("\n\nprefill")[0])
    assert texts[0] == texts[1] != texts[2]


def test_an_empty_prompt_and_one_beyond_the_positions():
    for prompt in ("", "x = 1\n" * 400):
        assert program.main(["--prompt", prompt, "--tokens", "4", "--device", "cpu"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tokens", "0"],
        ["--tokens", "many"],
        ["--temperature", "-1"],
        ["--temperature", "nan"],
        ["--top-k", "-1"],
        ["--seed", "-1"],
        ["--seed", str(2**63)],
        ["--dtype", "int8"],
        ["--backend", "magic"],
        ["--device", "toaster"],
        ["--device", "cuda:99"],
        ["--prompt", "\udcff"],
        ["--nonsense"],
    ],
    ids=ascii,
)
def test_bad_arguments_exit_2_with_a_sentence(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        program.main(arguments)
    assert caught.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("generate: error: ") and len(last) < 400


def test_a_bad_checkpoint_exits_2_with_a_sentence(run_program, tmp_path):
    result = run_program(PROGRAM, "--checkpoint", tmp_path / "nowhere")
    assert result.returncode == 2
    assert result.stderr == f"generate: {tmp_path / 'nowhere'}: no such checkpoint folder\n"
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    assert program.main(["--checkpoint", str(tmp_path)]) == 2


@pytest.mark.parametrize("form", ["tokenizer.json", "vocab.json and merges.txt"])
def test_a_users_own_checkpoint_loads(checkpoint_folder, tokenizer, capsys, form):
    if form != "tokenizer.json":
        tokenizer.model.save(str(checkpoint_folder))
        (checkpoint_folder / "tokenizer.json").unlink()
    arguments = ["--checkpoint", str(checkpoint_folder), "--tokens", "40", "--compare"]
    assert program.main([*arguments, "--device", "cpu", *TORCH]) == 0
    assert "sound: 0.0 M parameters" in capsys.readouterr().out
