"""The real run in demos/train_gpt2/README.md: its figures are those of the log that is kept."""

import csv
import json
import statistics
from pathlib import Path

from demos.train_gpt2 import gather, plot

FOLDER = Path(plot.__file__).parent
KEPT = FOLDER / "real_run"
TOKENS_A_STEP = 64 * 1024


def test_readme_says_what_the_log_says():
    readme = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    curves = plot.read(KEPT / "log.csv")
    steps, losses = curves["eval_loss"]
    rows = list(csv.DictReader((KEPT / "log.csv").open()))
    times = [float(row["ms"]) for row in rows if row["ms"]]
    last = int(steps[-1])
    speed = TOKENS_A_STEP / statistics.median(times) * 1000
    said = [
        f"--steps {last} ",
        f"{last:,} steps",
        f"{last * TOKENS_A_STEP / 1e6:.0f} million tokens",
        f"{losses[-1]:.3f} nats a token",
        f"{statistics.median(times):.1f} ms a step",
        f"{round(speed, -3):,.0f} tokens a second",
    ]
    assert [text for text in said if text not in readme] == []
    assert losses[-1] == min(losses)


def test_checkpoint_is_gpt2_124m():
    config = json.loads((KEPT / "config.json").read_text())
    sizes = {key: config[key] for key in ("n_layer", "n_head", "n_embd", "n_positions")}
    assert sizes == {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024}
    assert config["vocab_size"] == 50257


def test_every_package_is_named_with_a_free_licence():
    lines = (KEPT / "packages.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][1:]
    assert len(rows) > 50
    assert [name for name, licence, *_ in rows if not gather.is_free(licence)] == []
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    asked = readme.split("--packages ", 1)[1].split("\n```", 1)[0]
    asked = "".join(asked.replace("\\", "").split()).split(",")
    assert sorted(asked) == sorted(name.split()[0].lower() for name, *_ in rows)
