"""`apply` and `revert`."""

import collections
import importlib
import re
import types
from collections.abc import Iterator
from typing import Any

from torch import nn

from thunderkittens.integrations.transformers import _loss, _swap
from thunderkittens.integrations.transformers._known import (
    PARTS,
    LeftAlone,
    not_linear,
    part_of,
    recipe_for,
)
from thunderkittens.integrations.transformers._report import Places, Report

_OLDEST = "5.0"
_CHANGED = "another library has changed its class since `apply`"


def apply(
    model: nn.Module,
    *,
    norms: bool = True,
    mlps: bool = True,
    rotary: bool = True,
    loss: bool = True,
    linear_loss: bool = False,
) -> Report:
    """Puts thunderkittens ops into one model of transformers, in place.

    Llama, Mistral, Qwen 2 and 3, Phi-3, Gemma 2 and 3, and GPT-2: their norms, the activation in
    their feed-forward layers, rotary embedding, and the loss of a causal language model. Other
    instances of the classes are not touched, nor is attention itself; parameters, `state_dict`,
    `save_pretrained`, hooks and `isinstance` stay what they were. Twice is as good as once, and
    what is applied to stays so in copies and pickles.

    Args:
        model: A model of transformers, or any module that has one inside (as PEFT's have).
        norms: RMSNorm and `torch.nn.LayerNorm`.
        mlps: The activation, with the product of gate and up. The projections are still called as
            modules: adapters and quantised layers stay in force.
        rotary: Rotary embedding in attention. Its forward runs as it is, with our function under
            the name `apply_rotary_pos_emb`.
        loss: The loss of models whose loss function is transformers' ForCausalLMLoss.
        linear_loss: In training, with `labels` given by keyword, compute the loss together with the
            head, a chunk of tokens at a time: the logits are never in memory whole, and the
            output's `logits` is None. In evaluation, with `logits_to_keep`, an adapter on the head
            or capped logits the model goes its usual way. Needs `loss`.

    Returns:
        What was replaced, and what was left alone and why.

    Raises:
        ImportError: transformers is missing, or older than 5.0.
        TypeError: model is no module.
        ValueError: linear_loss without loss.

    Numerics:
        float32: as the original's, up to the order of sums. In 16 bit most steps are rounded once
        where the original rounds after each operation: rotary embedding, gated products and GPT-2's
        gelu are closer to the formula. A result has the dtype that the original's would have, but
        rotary embedding under autocast keeps q's dtype instead of float32. As all our ops, these
        are differentiable once.

    Example:
        >>> from thunderkittens.integrations.transformers import apply
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = dict(hidden_size=32, intermediate_size=64, num_attention_heads=2)
        >>> model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=100))
        >>> len(apply(model).replaced)
        4
    """
    transformers = library("apply")
    _check("apply", model)
    if linear_loss and not loss:
        raise ValueError("apply: linear_loss=True needs loss=True, got False")
    wanted = {"norm": norms, "mlp": mlps, "rotary": rotary}
    replaced, skipped = _Groups(), _Groups()
    for path, module in _modules(model):
        if isinstance(module, transformers.PreTrainedModel):
            if loss:
                _apply_loss(path, module, linear_loss, replaced, skipped)
        elif _swap.is_swapped(module):
            replaced.add(path, module, *_now(module))
        elif _swap.is_swapped_below(module):
            skipped.add(path, module, "class", _CHANGED)
        elif (part := part_of(module)) and wanted[part]:
            try:
                _swap.swap(module, *recipe_for(module, part))
            except LeftAlone as reason:
                skipped.add(path, module, part, str(reason))
            else:
                replaced.add(path, module, *_now(module))
    return Report(type(model).__name__, replaced.places(), skipped.places())


def revert(model: nn.Module) -> Report:
    """Puts back exactly what `apply` took from the model, in place.

    Args:
        model: What `apply` was given; a part of it will do.

    Returns:
        What was put back, and what could not be, and why.

    Raises:
        TypeError: model is no module.

    Example:
        >>> import torch
        >>> from thunderkittens.integrations.transformers import revert
        >>> print(revert(torch.nn.Linear(2, 2)))
        Linear: nothing of it takes thunderkittens ops
    """
    _check("revert", model)
    reverted, skipped = _Groups(), _Groups()
    for path, module in _modules(model):
        own = vars(module).get("_loss_function")
        if isinstance(own, _loss.CausalLMLoss):
            owner: Any = module  # its loss_function is a property
            del owner._loss_function
            if own.previous is not None:
                owner.loss_function = own.previous
            if not _swap.is_swapped(module):
                reverted.add(path, module, "loss", "cross_entropy")
        if _swap.is_swapped(module):
            now = _now(module)
            _swap.put_back(module)
            reverted.add(path, module, *now)
        elif _swap.is_swapped_below(module):
            skipped.add(path, module, "class", _CHANGED)
    return Report(type(model).__name__, skipped=skipped.places(), reverted=reverted.places())


def _apply_loss(
    path: str, model: Any, linear: bool, replaced: "_Groups", skipped: "_Groups"
) -> None:
    """The loss of a model of transformers; its decoder, which has none, is passed over."""
    from transformers.loss.loss_utils import ForCausalLMLoss

    if _swap.is_swapped_below(model):
        skipped.add(path, model, "class", _CHANGED)
        return
    if not isinstance(model.__dict__.get("_loss_function"), _loss.CausalLMLoss):
        if model.get_output_embeddings() is None:  # a decoder, or one with another head
            return
        if model.loss_function is not ForCausalLMLoss:
            name = getattr(model.loss_function, "__name__", type(model.loss_function).__name__)
            skipped.add(path, model, "loss", f"its loss is {name}, not ForCausalLMLoss")
            return
        model.loss_function = _loss.CausalLMLoss(vars(model).get("_loss_function"))
    if linear and not _swap.is_swapped(model):
        if why := not_linear(model):
            skipped.add(path, model, "loss", f"has no linear_loss: {why}")
        else:
            _swap.swap(model, "linear_loss")
    replaced.add(
        path, model, "loss", _now(model)[1] if _swap.is_swapped(model) else "cross_entropy"
    )


def _now(module: nn.Module) -> tuple[str, str]:
    """The part that a swapped module is, and the op that it takes."""
    name, *options = _swap.recipe_of(module)
    part, op = PARTS[name]
    return part, {"silu": "swiglu"}.get(options[0], op) if options else op


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Each module once, the list fixed beforehand."""
    return iter(list(model.named_modules()))


class _Groups:
    """Paths by part, class and outcome, in the order of the model."""

    def __init__(self) -> None:
        self._paths: dict[tuple[str, str, str], list[str]] = collections.defaultdict(list)

    def add(self, path: str, module: nn.Module, part: str, outcome: str) -> None:
        self._paths[part, type(module).__name__, outcome].append(path)

    def places(self) -> tuple[Places, ...]:
        order = {part: i for i, part in enumerate(("norm", "rotary", "mlp", "loss"))}
        found = [Places(*key, tuple(paths)) for key, paths in self._paths.items()]
        return tuple(sorted(found, key=lambda places: order.get(places.part, len(order))))


def _check(function: str, model: object) -> None:
    if not isinstance(model, nn.Module):
        got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(f"{function}: model must be a torch.nn.Module, got {got}")


def library(function: str, oldest: str = _OLDEST) -> types.ModuleType:
    """Imports transformers, `oldest` or newer, for a function of ours; says what is missing."""
    try:
        library = importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(
            f"{function}: transformers must be installed, got {error}; "
            f"`pip install 'transformers>={oldest}'`"
        ) from error
    version = tuple(int(part) for part in re.findall(r"\d+", library.__version__)[:2])
    if version < tuple(int(part) for part in oldest.split(".")):
        raise ImportError(
            f"{function}: transformers must be {oldest} or newer, got {library.__version__}; "
            f"`pip install --upgrade 'transformers>={oldest}'`"
        )
    return library
