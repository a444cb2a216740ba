"""Hedgehog attention with its learned maps and weights."""

import math

import torch
from torch import Tensor

from thunderkittens.nn._options import check_sizes
from thunderkittens.ops.hedgehog_attention import (
    HedgehogState,
    hedgehog_attention,
    hedgehog_attention_step,
)

_WINDOW_WEIGHT = 0.1  # in the beginning, LoLCATs' own


class HedgehogAttention(torch.nn.Module):
    """`hedgehog_attention` with learned maps and a learned weight of the window, as in LoLCATs.

    The window's weight beta is the sigmoid of `window_factors`; alpha, of what is linear, is 1, or
    1 − beta where `affine`. Projections and rotary embeddings are the caller's.

    Args:
        heads: H, of queries, keys and values alike.
        head_dim: D.
        features: F, the columns of a map: two softmaxes of as many features.
        affine: Whether the weights of window and remainder add up to 1.
        device: Of the parameters.
        dtype: Of the parameters; that of the maps is q's, or autocast's.

    Attributes:
        q_map: [H, D, F].
        k_map: The same.
        window_factors: [H]; in the beginning the logit of 0.1.

    Example:
        >>> import torch, thunderkittens
        >>> attention = thunderkittens.nn.HedgehogAttention(4, head_dim=16, features=8)
        >>> q, k, v = torch.randn(3, 2, 100, 4, 16).unbind()
        >>> y, state = attention(q, k, v, output_final_state=True)
        >>> attention.step(q[:, 0].detach(), k[:, 0].detach(), v[:, 0].detach(), state).shape
        torch.Size([2, 4, 16])
    """

    def __init__(
        self,
        heads: int,
        head_dim: int = 128,
        features: int = 64,
        *,
        affine: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes("HedgehogAttention", heads=heads, head_dim=head_dim, features=features)
        self.heads, self.head_dim, self.features, self.affine = heads, head_dim, features, affine
        sizes = (heads, head_dim, features)
        self.q_map = torch.nn.Parameter(torch.empty(sizes, device=device, dtype=dtype))
        self.k_map = torch.nn.Parameter(torch.empty(sizes, device=device, dtype=dtype))
        self.window_factors = torch.nn.Parameter(torch.empty(heads, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Maps as those of a linear layer, uniform up to 1 / sqrt(D); the window's weight 0.1."""
        bound = self.head_dim**-0.5 if self.head_dim > 0 else 0.0
        torch.nn.init.uniform_(self.q_map, -bound, bound)
        torch.nn.init.uniform_(self.k_map, -bound, bound)
        torch.nn.init.constant_(
            self.window_factors, math.log(_WINDOW_WEIGHT / (1 - _WINDOW_WEIGHT))
        )

    def weights(self) -> tuple[Tensor, Tensor]:
        """alpha and beta, [H], float32 (float64 for float64)."""
        exact = torch.promote_types(self.window_factors.dtype, torch.float32)
        beta = torch.sigmoid(self.window_factors.to(exact))
        return (1 - beta if self.affine else torch.ones_like(beta)), beta

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        initial_state: HedgehogState | None = None,
        output_final_state: bool = False,
    ) -> Tensor | tuple[Tensor, HedgehogState]:
        """As `hedgehog_attention` of q, k [B, S, H, D] and v [B, S, H, E]."""
        alpha, beta = self.weights()
        return hedgehog_attention(
            q,
            k,
            v,
            self.q_map,
            self.k_map,
            alpha=alpha,
            beta=beta,
            initial_state=initial_state,
            output_final_state=output_final_state,
        )

    @torch.no_grad()
    def step(self, q: Tensor, k: Tensor, v: Tensor, state: HedgehogState) -> Tensor:
        """As `hedgehog_attention_step` of q, k [B, H, D] and v [B, H, E]; the state is updated."""
        alpha, beta = self.weights()
        state = HedgehogState(*(t.detach() for t in state))
        return hedgehog_attention_step(
            q, k, v, self.q_map, self.k_map, alpha=alpha, beta=beta, state=state
        )

    def extra_repr(self) -> str:
        """For `print`."""
        text = f"{self.heads}, head_dim={self.head_dim}, features={self.features}"
        return f"{text}, affine=True" if self.affine else text
