"""Linear attention as a layer: projections, decays, norm and gate."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, overload

import torch
from torch import Tensor, nn
from torch.nn import functional

from thunderkittens.nn._options import check_choice, check_numbers, check_sizes
from thunderkittens.ops.activation import swiglu
from thunderkittens.ops.linear_attention import linear_attention
from thunderkittens.ops.linear_attention_decay import (
    lightning_log_decay,
    minimax_log_decay,
    retention_log_decay,
)
from thunderkittens.ops.linear_attention_step import linear_attention_step
from thunderkittens.ops.norm import layer_norm, rms_norm

_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "silu": functional.silu,
    "elu+1": lambda x: functional.elu(x) + 1,
}
_DECAYS = ("retention", "lightning", "minimax")


class LinearAttention(nn.Module):
    """A layer of linear attention, by `thunderkittens.linear_attention`: training and decoding.

    With φ the feature map, S the state of a head and g its logarithm of the decay,

        q = φ(q_proj x), k = φ(k_proj x), v = v_proj x
        S ← exp(g) S + k vᵀ, o = scale · Sᵀ q
        y = o_proj(act(g_proj x) · norm(o))

    without norm and gate where they are None. RetNet's layer (but for its rotation of q and k) is
    `log_decay="retention", norm="group", gate="silu"`; that of Lightning attention
    `log_decay="lightning", feature_map="silu", scale=1.0, norm="rms", gate="sigmoid"`; that of
    MiniMax-01 `log_decay="minimax", feature_map="silu", map_values=True, scale=1.0, norm="rms",
    gate="sigmoid"`, the last two with `layer` and `layers`.

    Args:
        hidden_size: D, of x and y.
        num_heads: H.
        num_key_heads: Hk, the heads of q and k, of which H is a multiple: head h reads head
            h // (H / Hk) of both. None for H.
        head_dim: K, of q and k; None for D // H.
        value_dim: V, of v; None for K.
        log_decay: "retention", "lightning" or "minimax", for the decays of
            `thunderkittens.retention_log_decay` and so on; or a tensor [H], at most 0, which a
            checkpoint has, and which is trained if it is a parameter. None for no decay.
        layer: Which of the model's layers this is, from 0; for "lightning" and "minimax".
        layers: How many it has.
        feature_map: φ: "identity", "silu" or "elu+1".
        map_values: v goes through φ, too.
        scale: Of o; None for 1 / sqrt(K).
        norm: "group", a layer norm of each head's o, without parameters; or "rms", an RMS norm of
            all heads' o together, with a weight; or None.
        gate: "silu", "sigmoid" or None.
        eps: Of the norm.
        bias: Whether the projections have one.
        device: Of the parameters.
        dtype: Of the parameters.

    Attributes:
        q_proj: A linear layer, D → Hk · K; k_proj the same.
        v_proj: A linear layer, D → H · V.
        o_proj: A linear layer, H · V → D.
        g_proj: A linear layer, D → H · V, or None without gate.
        norm_weight: [H · V], ones at first, or None.
        log_decay: [H], float32 whatever the module is cast to, or None.

    Example:
        >>> import torch, thunderkittens
        >>> layer = thunderkittens.nn.LinearAttention(64, 4, log_decay="retention")
        >>> x, state = torch.randn(2, 5, 64), layer.init_state(2)
        >>> y = layer(x)
        >>> steps = [layer.step(x[:, t], state) for t in range(5)]
        >>> torch.allclose(torch.stack(steps, 1), y, atol=1e-5)
        True
    """

    g_proj: nn.Linear | None
    norm_weight: nn.Parameter | None
    log_decay: Tensor | None

    if TYPE_CHECKING:

        @overload
        def __call__(self, x: Tensor, state: None = ...) -> Tensor: ...
        @overload
        def __call__(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]: ...
        def __call__(self, *args: object, **kwargs: object) -> object:
            """Calls `forward`."""
            ...

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_key_heads: int | None = None,
        *,
        head_dim: int | None = None,
        value_dim: int | None = None,
        log_decay: Tensor | Literal["retention", "lightning", "minimax"] | None = None,
        layer: int = 0,
        layers: int = 1,
        feature_map: Literal["identity", "silu", "elu+1"] = "identity",
        map_values: bool = False,
        scale: float | None = None,
        norm: Literal["group", "rms"] | None = None,
        gate: Literal["silu", "sigmoid"] | None = None,
        eps: float = 1e-5,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        key_heads = num_heads if num_key_heads is None else num_key_heads
        check_sizes(
            "LinearAttention", hidden_size=hidden_size, num_heads=num_heads, num_key_heads=key_heads
        )
        if num_heads < 1 or key_heads < 1 or num_heads % key_heads:
            raise ValueError(
                "LinearAttention: num_heads must be a multiple of num_key_heads, and both >= 1, "
                f"got {num_heads} and {key_heads}"
            )
        keys = hidden_size // num_heads if head_dim is None else head_dim
        values = keys if value_dim is None else value_dim
        check_sizes("LinearAttention", head_dim=keys, value_dim=values)
        check_choice("LinearAttention", "feature_map", feature_map, tuple(_MAPS))
        for name, given, choices in (
            ("norm", norm, ("group", "rms")),
            ("gate", gate, ("silu", "sigmoid")),
        ):
            if given is not None:
                check_choice("LinearAttention", name, given, choices)
        check_numbers("LinearAttention", eps=eps, **({} if scale is None else {"scale": scale}))
        self.hidden_size, self.num_heads, self.num_key_heads = hidden_size, num_heads, key_heads
        self.head_dim, self.value_dim = keys, values
        self.layer, self.layers = layer, layers
        self.feature_map, self.map_values, self.scale = feature_map, map_values, scale
        self.norm, self.gate, self.eps, self.bias = norm, gate, eps, bias

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias, device, dtype)

        self.q_proj, self.k_proj = (linear(hidden_size, key_heads * keys) for _ in "qk")
        self.v_proj = linear(hidden_size, num_heads * values)
        self.o_proj = linear(num_heads * values, hidden_size)
        self.g_proj = None if gate is None else linear(hidden_size, num_heads * values)
        weight = torch.ones(num_heads * values, device=device, dtype=dtype)
        self.register_parameter("norm_weight", nn.Parameter(weight) if norm == "rms" else None)
        self._set_decay(log_decay, device)

    def _set_decay(self, given: Tensor | str | None, device: torch.device | str | None) -> None:
        self.decay = given if isinstance(given, str) else None  # the name, for extra_repr
        if given is None:
            self.register_buffer("log_decay", None)
        elif isinstance(given, Tensor):
            if given.shape != (self.num_heads,):
                raise ValueError(
                    f"LinearAttention: log_decay must have shape [{self.num_heads}] (num_heads), "
                    f"got {list(given.shape)}"
                )
            if isinstance(given, nn.Parameter):
                self.log_decay = given
            else:
                self.register_buffer("log_decay", given.to(device=device, dtype=torch.float32))
        else:
            check_choice("LinearAttention", "log_decay", given, _DECAYS)
            self.register_buffer("log_decay", self._named_decay(device), persistent=False)

    def _named_decay(self, device: torch.device | str | None) -> Tensor:
        if self.decay == "retention":
            return retention_log_decay(self.num_heads, device=device)
        function = lightning_log_decay if self.decay == "lightning" else minimax_log_decay
        return function(self.num_heads, self.layer, self.layers, device=device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "LinearAttention":
        """Moves and casts as torch does, but for the decays, which stay float32."""
        before = self.log_decay
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if before is None or self.log_decay is None or isinstance(before, nn.Parameter):
            return self
        device = self.log_decay.device
        if self.decay is not None:
            self.log_decay = self._named_decay(str(device))
        else:
            self.log_decay = self.log_decay.float() if before.is_meta else before.to(device)
        return self

    def init_state(self, batch: int) -> Tensor:
        """The state before the first token: zeros, [batch, H, K, V], float32 (float64 of float64).

        It is all that decoding keeps of the tokens so far, however many.
        """
        weight = self.q_proj.weight
        exact = torch.float64 if weight.dtype == torch.float64 else torch.float32
        sizes = (batch, self.num_heads, self.head_dim, self.value_dim)
        return torch.zeros(sizes, device=weight.device, dtype=exact)

    @overload
    def forward(self, x: Tensor, state: None = ...) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]: ...
    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """x [B, S, D] → y [B, S, D]; with the state before x, y and the state after it.

        The state that is given stays as it is; both are differentiable.
        """
        q, k, v = self._projected(x)
        decay = self._decay_for(q)
        if state is None:
            return self._output(x, linear_attention(q, k, v, log_decay=decay, scale=self.scale))
        o, last = linear_attention(
            q,
            k,
            v,
            log_decay=decay,
            scale=self.scale,
            initial_state=state,
            output_final_state=True,
        )
        return self._output(x, o), last

    @torch.no_grad()
    def step(self, x: Tensor, state: Tensor, *, state_indices: Tensor | None = None) -> Tensor:
        """One token: x [B, D] → y [B, D], without gradients; the state is updated in place.

        Args:
            x: [B, D].
            state: As `init_state` makes it; with `state_indices` of any number of slots.
            state_indices: [B], which state is whose: see `thunderkittens.linear_attention_step`.

        Returns:
            What `forward` gives for that token.
        """
        q, k, v = self._projected(x)
        o = linear_attention_step(
            q,
            k,
            v,
            state,
            log_decay=self._decay_for(q),
            scale=self.scale,
            state_indices=state_indices,
        )
        return self._output(x, o)

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, [..., heads, width]."""
        phi = _MAPS[self.feature_map]
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.map_values:
            v = phi(v)
        key_shape, value_shape = (
            (self.num_key_heads, self.head_dim),
            (self.num_heads, self.value_dim),
        )
        return (
            phi(q).unflatten(-1, key_shape),
            phi(k).unflatten(-1, key_shape),
            v.unflatten(-1, value_shape),
        )

    def _decay_for(self, q: Tensor) -> Tensor | None:
        if self.log_decay is None:
            return None
        return self.log_decay.to(torch.float64 if q.dtype == torch.float64 else torch.float32)

    def _output(self, x: Tensor, o: Tensor) -> Tensor:
        """o [..., H, V] → y."""
        if self.norm == "group":
            o = layer_norm(o, None, None, self.eps)
        o = o.flatten(-2)
        if self.norm == "rms":
            o = rms_norm(o, self.norm_weight, self.eps)
        if self.g_proj is not None:
            gate = self.g_proj(x)
            o = swiglu(gate, o) if self.gate == "silu" else torch.sigmoid(gate) * o
        y: Tensor = self.o_proj(o)
        return y

    def extra_repr(self) -> str:
        """All settings."""
        decay = repr(self.decay) if self.decay is not None or self.log_decay is None else "[H]"
        return (
            f"{self.hidden_size}, num_heads={self.num_heads}, num_key_heads={self.num_key_heads}, "
            f"head_dim={self.head_dim}, value_dim={self.value_dim}, log_decay={decay}, "
            f"layer={self.layer}, layers={self.layers}, feature_map={self.feature_map!r}, "
            f"map_values={self.map_values}, scale={self.scale}, norm={self.norm!r}, "
            f"gate={self.gate!r}, eps={self.eps}, bias={self.bias}"
        )
