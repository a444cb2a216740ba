"""Based's linear attention as a layer: its projections around `based_attention`."""

from typing import TYPE_CHECKING, TypeAlias, overload

import torch
from torch import Tensor, nn

from thunderkittens.nn._options import check_numbers, check_sizes
from thunderkittens.ops.based_attention import based_attention
from thunderkittens.ops.based_attention_step import based_attention_step

_State: TypeAlias = Tensor | tuple[Tensor, Tensor]


class BasedAttention(nn.Module):
    """A layer of Based's linear attention, by `thunderkittens.based_attention`.

    Of each head, with q = q_proj x, k = k_proj x, v = v_proj x, s(i, j) = scale · q(i) · k(j) and
    A = 1 + s + s²/2,

        o(i) = Σ(j ≤ i) A(i, j) v(j) / (Σ(j ≤ i) A(i, j) + eps),    y = o_proj o

    and without `normalize` o is the sum alone.

    Args:
        hidden_size: D, of x and y.
        num_heads: H.
        feature_dim: Of q and k, of each head. The kernel takes 8 and 16.
        value_dim: V, of v; None for D // H.
        scale: Of the scores, above 0; None for 1 / sqrt(feature_dim).
        normalize: Divide by the sum of the weights.
        eps: Added to the sum of the weights; at least 0.
        bias: Whether the projections have one.
        device: Of the parameters.
        dtype: Of the parameters.

    Attributes:
        q_proj: A linear layer, D → H · feature_dim; k_proj the same.
        v_proj: A linear layer, D → H · V.
        o_proj: A linear layer, H · V → D.

    Example:
        >>> import torch, thunderkittens
        >>> layer = thunderkittens.nn.BasedAttention(64, 4)
        >>> x, state = torch.randn(2, 5, 64), layer.init_state(2)
        >>> y = layer(x)
        >>> steps = [layer.step(x[:, t], state) for t in range(5)]
        >>> torch.allclose(torch.stack(steps, 1), y, atol=1e-5)
        True
    """

    if TYPE_CHECKING:

        @overload
        def __call__(self, x: Tensor, state: None = ...) -> Tensor: ...
        @overload
        def __call__(self, x: Tensor, state: _State) -> tuple[Tensor, _State]: ...
        def __call__(self, *args: object, **kwargs: object) -> object:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        feature_dim: int = 16,
        value_dim: int | None = None,
        scale: float | None = None,
        normalize: bool = True,
        eps: float = 1e-12,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(
            "BasedAttention",
            hidden_size=hidden_size,
            num_heads=num_heads,
            feature_dim=feature_dim,
        )
        if num_heads < 1:
            raise ValueError(f"BasedAttention: num_heads must be >= 1, got {num_heads}")
        values = hidden_size // num_heads if value_dim is None else value_dim
        check_sizes("BasedAttention", value_dim=values)
        check_numbers("BasedAttention", eps=eps, **({} if scale is None else {"scale": scale}))
        if not isinstance(normalize, bool):
            raise TypeError(f"BasedAttention: normalize must be True or False, got {normalize!r}")
        self.hidden_size, self.num_heads = hidden_size, num_heads
        self.feature_dim, self.value_dim = feature_dim, values
        self.scale, self.normalize, self.eps, self.bias = scale, normalize, eps, bias

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias, device, dtype)

        self.q_proj, self.k_proj = (linear(hidden_size, num_heads * feature_dim) for _ in "qk")
        self.v_proj = linear(hidden_size, num_heads * values)
        self.o_proj = linear(num_heads * values, hidden_size)

    def init_state(self, batch: int) -> _State:
        """The state before the first token: zeros, float32 (float64 of float64).

        (S, z) of shapes [batch, H, F, V] and [batch, H, F], F = 1 + K + K (K + 1) / 2 of K =
        feature_dim; without `normalize` S alone. It is all that decoding keeps of the tokens so
        far, however many.
        """
        weight = self.q_proj.weight
        exact = torch.float64 if weight.dtype == torch.float64 else torch.float32
        features = 1 + self.feature_dim + self.feature_dim * (self.feature_dim + 1) // 2
        sizes = (batch, self.num_heads, features)
        state = torch.zeros((*sizes, self.value_dim), device=weight.device, dtype=exact)
        if not self.normalize:
            return state
        return state, torch.zeros(sizes, device=weight.device, dtype=exact)

    @overload
    def forward(self, x: Tensor, state: None = ...) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, state: _State) -> tuple[Tensor, _State]: ...
    def forward(self, x: Tensor, state: _State | None = None) -> Tensor | tuple[Tensor, _State]:
        """x [B, S, D] → y [B, S, D]; with the state before x, y and the state after it.

        The state that is given stays as it is; both are differentiable.
        """
        result = based_attention(
            *self._projected(x),
            scale=self.scale,
            normalize=self.normalize,
            eps=self.eps,
            initial_state=state,
            output_final_state=state is not None,
        )
        if isinstance(result, Tensor):
            return self._output(result)
        o, last = result
        return self._output(o), last

    @torch.no_grad()
    def step(self, x: Tensor, state: _State) -> Tensor:
        """One token: x [B, D] → y [B, D], without gradients; the state is updated in place.

        Args:
            x: [B, D].
            state: As `init_state` makes it.

        Returns:
            What `forward` gives for that token.
        """
        o = based_attention_step(
            *self._projected(x),
            state,
            scale=self.scale,
            normalize=self.normalize,
            eps=self.eps,
        )
        return self._output(o)

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, [..., H, width]."""
        keys, values = (self.num_heads, self.feature_dim), (self.num_heads, self.value_dim)
        return (
            self.q_proj(x).unflatten(-1, keys),
            self.k_proj(x).unflatten(-1, keys),
            self.v_proj(x).unflatten(-1, values),
        )

    def _output(self, o: Tensor) -> Tensor:
        """o [..., H, V] → y."""
        y: Tensor = self.o_proj(o.flatten(-2))
        return y

    def extra_repr(self) -> str:
        """All settings."""
        return (
            f"{self.hidden_size}, num_heads={self.num_heads}, feature_dim={self.feature_dim}, "
            f"value_dim={self.value_dim}, scale={self.scale}, normalize={self.normalize}, "
            f"eps={self.eps}, bias={self.bias}"
        )
