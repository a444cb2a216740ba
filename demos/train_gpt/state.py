"""The saved state of a training run, in a folder of its own: all that exact resuming needs.

    step-000500/
        config.json  model.safetensors  tokenizer.json     the model, as it computes
        training.safetensors    optimizer.<parameter>.{step,exp_avg,exp_avg_sq}, of bfloat16 models
                                also .master_param, the float32 weights; rng.cpu, rng.cuda
        training.json           step (the data position follows from it), best loss, options, text

The folder appears whole, by a rename, and only then the one before it goes.
"""

import shutil
from pathlib import Path

import torch
from models import checkpoint
from models.gpt2 import GPT2
from parallel import Team
from tokenizers import Tokenizer

_MOMENTS = ("exp_avg", "exp_avg_sq")
_MASTER = "master_param"
_FACTS = {"device": str, "step": int, "best_loss": float, "text": str, "options": dict}


def newest(out: Path) -> Path:
    """The folder of the newest saved state of a run."""
    folders = sorted(path for path in out.glob("step-*") if path.suffix != ".partial")
    if not folders:
        raise checkpoint.CheckpointError(f"{out}: there is no saved run to resume")
    return folders[-1]


def read_facts(folder: Path) -> dict:
    """What training.json says."""
    facts = checkpoint.read_json(folder / "training.json")
    for name, kind in _FACTS.items():
        if type(facts.get(name)) is not kind:
            raise checkpoint.CheckpointError(
                f"{folder}/training.json: {name} must be of type {kind.__name__}, "
                f"got {facts.get(name)!r}"
            )
    return facts


def save(
    out: Path,
    model: GPT2,
    tokenizer: Tokenizer,
    optimizer: torch.optim.Optimizer,
    facts: dict,
    team: Team,
) -> None:
    """Writes out/step-…; `facts` go into training.json. All ranks call it, and rank 0 writes."""
    plain = team.plain(model)
    tensors = dict(_generators(model))
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{name}.{key}"] = team.whole(name, value)
    folder = out / f"step-{facts['step']:06d}"
    if team.rank > 0 or folder.exists():
        return
    scratch = folder.with_suffix(".partial")
    shutil.rmtree(scratch, ignore_errors=True)
    checkpoint.save(scratch, plain, tokenizer)
    checkpoint.write_tensors(scratch / "training.safetensors", tensors)
    checkpoint.write_json(scratch / "training.json", {**facts, "device": _device(model).type})
    older = list(out.glob("step-*[0-9]"))
    scratch.rename(folder)
    for path in older:
        shutil.rmtree(path, ignore_errors=True)


def restore(folder: Path, model: GPT2, optimizer: torch.optim.Optimizer, team: Team) -> dict:
    """Sets the optimizer and the random generators; returns the facts."""
    facts = read_facts(folder)
    device = _device(model).type
    if facts["device"] != device:  # other random numbers: not the same run
        raise checkpoint.CheckpointError(
            f"{folder}: the run was made on {facts['device']}, got {device}; "
            f"resume it with --device {facts['device']}"
        )
    shapes = {name: tuple(value.shape) for name, value in _generators(model).items()}
    has_masters = _parameter(model).dtype == torch.bfloat16
    kept = (*_MOMENTS, _MASTER) if has_masters else _MOMENTS
    for name, parameter in model.named_parameters():
        shapes[f"optimizer.{name}.step"] = ()  # (and those of a DTensor are those of the whole)
        shapes |= {f"optimizer.{name}.{key}": tuple(parameter.shape) for key in kept}
    path = folder / "training.safetensors"
    tensors = checkpoint.read_tensors(path, shapes, dtypes={"F32", "U8"})
    for name, parameter in model.named_parameters():
        saved = {
            key: tensors[f"optimizer.{name}.{key}"].to(parameter.device) for key in ("step", *kept)
        }
        parts = {key: team.part(name, saved[key], parameter) for key in kept}
        optimizer.state[parameter] = {"step": saved["step"], **parts}
    torch.set_rng_state(tensors["rng.cpu"])
    if "rng.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng.cuda"], _device(model))
    return facts


def _generators(model: GPT2) -> dict[str, torch.Tensor]:
    """The states of the random generators that training draws from."""
    states = {"rng.cpu": torch.get_rng_state()}
    if _device(model).type == "cuda":
        states["rng.cuda"] = torch.cuda.get_rng_state(_device(model))
    return states


def _device(model: GPT2) -> torch.device:
    return _parameter(model).device


def _parameter(model: GPT2) -> torch.Tensor:
    return model.transformer.wte.weight
