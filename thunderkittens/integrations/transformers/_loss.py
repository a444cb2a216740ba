"""Losses of models with a language model's head."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from thunderkittens.integrations.transformers._swap import recipe
from thunderkittens.ops.cross_entropy import cross_entropy, linear_cross_entropy


@dataclasses.dataclass
class CausalLMLoss:
    """`transformers.loss.loss_utils.ForCausalLMLoss` on `thunderkittens.cross_entropy`.

    It reads the logits as they are: no float32 copy, none of the shifted ones.

    Attributes:
        previous: What the model had in this place of its own, or None; for `revert`.
    """

    previous: Callable[..., Tensor] | None = None

    def __call__(
        self,
        logits: Tensor,
        labels: Tensor | None,
        vocab_size: int,
        num_items_in_batch: Tensor | int | None = None,
        ignore_index: int = -100,
        shift_labels: Tensor | None = None,
        **kwargs: object,
    ) -> Tensor:
        """The mean over the tokens, or their sum over num_items_in_batch where that is given."""
        targets = shifted(labels, shift_labels, ignore_index, logits.device)
        count = num_items_in_batch
        loss = cross_entropy(
            logits.reshape(-1, vocab_size),
            targets,
            ignore_index=ignore_index,
            reduction="mean" if count is None else "sum",
        )
        return divided(loss, count)


@recipe
def linear_loss(original: type[nn.Module]) -> dict[str, object]:
    """A model of decoder and head: in training, given labels, the loss without logits."""
    from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions
    from transformers.utils.generic import can_return_tuple

    @can_return_tuple  # type: ignore[untyped-decorator]  # transformers has no types for it
    def compute(self: Any, *args: object, **kwargs: Any) -> object:
        labels, shift_labels = kwargs.pop("labels"), kwargs.get("shift_labels")
        ignore_index, count = kwargs.get("ignore_index", -100), kwargs.get("num_items_in_batch")
        kwargs.pop("logits_to_keep", None)
        outputs = getattr(self, self.base_model_prefix)(*args, **kwargs, return_dict=True)
        x, head = outputs.last_hidden_state, self.get_output_embeddings()
        loss = linear_cross_entropy(
            x.flatten(0, -2),
            head.weight,
            shifted(labels, shift_labels, ignore_index, x.device),
            bias=head.bias,
            ignore_index=ignore_index,
            reduction="mean" if count is None else "sum",
        )
        return CausalLMOutputWithCrossAttentions(
            loss=divided(loss, count),
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            cross_attentions=outputs.get("cross_attentions"),
        )

    @functools.wraps(original.forward)
    def forward(self: Any, *args: object, **kwargs: object) -> object:
        if self.training and len(args) < 2 and _is_linear(self, kwargs):
            return compute(self, *args, **kwargs)
        return original.forward(self, *args, **kwargs)

    return {"forward": forward}


def _is_linear(model: Any, kwargs: dict[str, object]) -> bool:
    """Whether a call's loss is that of one plain matrix: no adapter, no shard, nobody watching."""
    keep = kwargs.get("logits_to_keep", 0)
    if kwargs.get("labels") is None or not isinstance(keep, int) or keep != 0:
        return False
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear:
        return False
    weight = head.weight
    watched = head._forward_hooks or head._forward_pre_hooks or head._backward_hooks
    return (
        type(weight) is nn.Parameter
        and weight.shape == (head.out_features, head.in_features)  # ZeRO-3 keeps none of it
        and "forward" not in vars(head)
        and not watched
        and getattr(model.config, "final_logit_softcapping", None) is None
        and isinstance(model.loss_function, CausalLMLoss)
    )


def shifted(
    labels: Tensor | None, shift_labels: Tensor | None, ignore_index: int, device: torch.device
) -> Tensor:
    """The target of each token, [tokens]: the next label, of the last one none."""
    if shift_labels is None:
        # (pad itself refuses None: a caller has one of the two)
        padded = nn.functional.pad(labels, (0, 1), value=ignore_index)  # type: ignore[arg-type]
        shift_labels = padded[..., 1:]
    return shift_labels.reshape(-1).to(device)


def divided(loss: Tensor, count: Tensor | int | None) -> Tensor:
    """The loss over a number of tokens, where it is given."""
    if count is None:
        return loss
    return loss / (count.to(loss.device) if isinstance(count, Tensor) else count)
