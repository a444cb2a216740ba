"""Mamba-2 as a layer."""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from thunderkittens.nn._options import check_numbers, check_sizes
from thunderkittens.nn.norm import RMSNorm
from thunderkittens.ops.activation import swiglu
from thunderkittens.ops.mamba2 import mamba2
from thunderkittens.ops.mamba2_step import mamba2_step
from thunderkittens.ops.norm import rms_norm

_State = tuple[Tensor, Tensor]


class Mamba2(nn.Module):
    """A layer of Mamba-2, by `thunderkittens.mamba2`: mamba_ssm's `Mamba2`, whose weights it loads.

        z, xBC, dt = in_proj u
        x, B, C = silu(conv1d xBC), causal, each channel by itself
        y = mamba2(x, dt, −exp(A_log), B, C, D, dt_bias), with softplus
        out_proj(norm(y · silu(z)))

    Args:
        d_model: Width of u and of the result.
        d_state: N, of B and C.
        d_conv: Tokens that the convolution sees.
        expand: d_inner, the width of x and z, is so many times d_model.
        headdim: P, of which d_inner is a multiple: H = d_inner / P.
        ngroups: G, of which H is a multiple.
        rmsnorm: Whether there is the norm, of each group's channels; without, y · silu(z) goes on.
        dt_min: Of the steps that dt_bias begins with, the least …
        dt_max: … and the largest.
        dt_limit: As of `thunderkittens.mamba2`; None for no limits.
        bias: Whether the projections have one.
        conv_bias: Whether the convolution has one.
        eps: Of the norm.
        device: Of the parameters.
        dtype: Of the parameters.

    Attributes:
        in_proj: A linear layer, d_model → 2 · d_inner + 2 · G · N + H.
        conv1d: A convolution of d_inner + 2 · G · N channels.
        A_log: [H].
        D: [H].
        dt_bias: [H].
        norm: Of d_inner channels, or None.
        out_proj: A linear layer, d_inner → d_model.

    Example:
        >>> import torch, thunderkittens
        >>> layer = thunderkittens.nn.Mamba2(32, d_state=16, headdim=16)
        >>> u, state = torch.randn(2, 5, 32), layer.init_state(2)
        >>> y = layer(u)
        >>> with torch.no_grad():
        ...     steps = [layer.step(u[:, t], state) for t in range(5)]
        >>> torch.allclose(torch.stack(steps, 1), y, atol=1e-5)
        True
    """

    def __init__(
        self,
        d_model: int,
        d_state: int = 128,
        d_conv: int = 4,
        expand: int = 2,
        headdim: int = 64,
        ngroups: int = 1,
        *,
        rmsnorm: bool = True,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_limit: tuple[float, float] | None = None,
        bias: bool = False,
        conv_bias: bool = True,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes("Mamba2", d_model=d_model, d_state=d_state, d_conv=d_conv, expand=expand)
        check_sizes("Mamba2", headdim=headdim, ngroups=ngroups)
        check_numbers("Mamba2", dt_min=dt_min, dt_max=dt_max, eps=eps)
        self.d_inner, self.d_state, self.headdim = expand * d_model, d_state, headdim
        self.nheads, self.ngroups, self.dt_limit = self.d_inner // headdim, ngroups, dt_limit
        if self.nheads * headdim != self.d_inner or self.nheads % ngroups != 0:
            raise ValueError(
                f"Mamba2: expand * d_model must be a multiple of headdim * ngroups = "
                f"{headdim * ngroups}, got {self.d_inner}"
            )
        of_conv = self.d_inner + 2 * ngroups * d_state
        self.in_proj = nn.Linear(
            d_model, self.d_inner + of_conv + self.nheads, bias, device=device, dtype=dtype
        )
        self.conv1d = nn.Conv1d(
            of_conv,
            of_conv,
            d_conv,
            groups=of_conv,
            padding=d_conv - 1,
            bias=conv_bias,
            device=device,
            dtype=dtype,
        )
        self.A_log = nn.Parameter(torch.empty(self.nheads, device=device, dtype=dtype))
        self.D = nn.Parameter(torch.empty(self.nheads, device=device, dtype=dtype))
        self.dt_bias = nn.Parameter(torch.empty(self.nheads, device=device, dtype=dtype))
        self.norm = RMSNorm(self.d_inner, eps, device=device, dtype=dtype) if rmsnorm else None
        self.out_proj = nn.Linear(self.d_inner, d_model, bias, device=device, dtype=dtype)
        self._steps = (dt_min, dt_max)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Decays of 1 to 16, steps of dt_min to dt_max; the submodules have their own functions."""
        nn.init.ones_(self.D)
        nn.init.uniform_(self.A_log, 1, 16)
        self.A_log.log_()
        least, most = (math.log(step) for step in self._steps)
        nn.init.uniform_(self.dt_bias, least, most)
        self.dt_bias.copy_(torch.log(torch.expm1(self.dt_bias.float().exp())))

    def init_state(self, batch: int) -> _State:
        """The state before the first token: what the convolution sees, and S.

        Args:
            batch: Of the sequences; or how many are packed.

        Returns:
            Zeros, [batch, channels, d_conv] of the convolution's dtype and [batch, H, P, N] of
            float32 (float64 for float64). `forward` and `step` update both in place.
        """
        weight = self.conv1d.weight
        exact = torch.float64 if weight.dtype == torch.float64 else torch.float32
        sizes = (batch, self.nheads, self.headdim, self.d_state)
        return (
            weight.new_zeros(batch, weight.shape[0], weight.shape[2]),
            weight.new_zeros(sizes, dtype=exact),
        )

    def forward(
        self, u: Tensor, state: _State | None = None, *, cu_seqlens: Tensor | None = None
    ) -> Tensor:
        """Of a sequence.

        Args:
            u: [batch, S, d_model]; packed [T, d_model].
            state: What came before; updated in place, to the state after the last token, and then
                there are no gradients. None for nothing.
            cu_seqlens: Where packed sequences start and end, as of `thunderkittens.mamba2`. What is
                of none of them must be finite.

        Returns:
            As u.
        """
        z, xBC, dt = self._project(u)
        if cu_seqlens is None:
            xBC = self._convolve(xBC.transpose(1, 2), state).transpose(1, 2)
        else:
            if u.dim() != 2:
                raise ValueError(
                    "Mamba2: u must have shape [T, d_model] where cu_seqlens is given, got "
                    f"{list(u.shape)}"
                )
            xBC = self._convolve_packed(xBC, state, cu_seqlens)
        x, B, C = self._split(functional.silu(xBC).contiguous())
        z = z.unflatten(-1, (self.nheads, self.headdim))
        y, last = mamba2(
            x,
            dt,
            -torch.exp(self._exact(self.A_log)),
            B,
            C,
            D=self.D,
            z=z if self.norm is None else None,
            dt_bias=self.dt_bias,
            dt_softplus=True,
            dt_limit=self.dt_limit,
            initial_state=None if state is None else state[1],
            return_final_state=True,
            cu_seqlens=cu_seqlens,
        )
        if state is not None:
            state[1].copy_(last)
        return self._finish(y, z)

    def _convolve(self, xBC: Tensor, state: _State | None) -> Tensor:
        """[batch, channels, S]; updates what the convolution sees."""
        length = xBC.shape[-1]
        if state is None:
            return cast(Tensor, self.conv1d(xBC))[..., :length]
        seen = torch.cat([state[0].to(xBC.dtype), xBC], -1)
        state[0].copy_(seen[..., length:])
        weight, bias = self.conv1d.weight, self.conv1d.bias
        return functional.conv1d(seen[..., 1:], weight, bias, groups=weight.shape[0])

    def _convolve_packed(self, xBC: Tensor, state: _State | None, cu_seqlens: Tensor) -> Tensor:
        """[T, channels]: what came before each sequence is put in front of it, without a read back.

        A gap of d_conv rows, zeros or the state, comes before each sequence, and one behind all.
        """
        length, taps = xBC.shape[0], self.conv1d.weight.shape[-1]
        ends = cu_seqlens.clamp(0, length).long()
        gaps = len(ends) * taps
        tokens = torch.arange(length, device=xBC.device)
        rows = tokens + torch.bucketize(tokens, ends, right=True) * taps
        # Where each gap starts; the next sequence's is behind this one's last token.
        starts = ends + torch.arange(len(ends), device=xBC.device) * taps
        of_gap = torch.arange(taps, device=xBC.device)
        seen = xBC.new_zeros(length + gaps, xBC.shape[1]).index_copy(0, rows, xBC)
        if state is not None:
            before = (starts[:-1, None] + of_gap).flatten()
            last = (starts[1:, None] - taps + of_gap).flatten()
            seen = seen.index_copy(0, before, state[0].to(xBC.dtype).mT.flatten(0, 1))
            state[0].copy_(seen[last].unflatten(0, (-1, taps)).mT)
        weight, bias = self.conv1d.weight, self.conv1d.bias
        padded = functional.pad(seen.T, (taps - 1, 0))
        found = functional.conv1d(padded, weight, bias, groups=weight.shape[0])
        return found.T.index_select(0, rows)

    def step(self, u: Tensor, state: _State) -> Tensor:
        """Of the next token: call it under `torch.no_grad()`.

        Args:
            u: [batch, d_model].
            state: As of `init_state`, updated in place.

        Returns:
            [batch, d_model].
        """
        z, xBC, dt = self._project(u)
        seen, states = state
        seen.copy_(torch.cat([seen[..., 1:], xBC.unsqueeze(-1).to(seen.dtype)], -1))
        xBC = (seen * self.conv1d.weight[:, 0]).sum(-1)
        if self.conv1d.bias is not None:
            xBC = xBC + self.conv1d.bias
        x, B, C = self._split(functional.silu(xBC))
        z = z.unflatten(-1, (self.nheads, self.headdim))
        bias: Tensor | None = self.dt_bias
        if self.dt_limit is not None:  # which the op does not have
            dt = functional.softplus(self._exact(dt) + self._exact(self.dt_bias))
            dt, bias = dt.clamp(*self.dt_limit), None
        y = mamba2_step(
            x,
            dt,
            -torch.exp(self._exact(self.A_log)),
            B,
            C,
            states,
            D=self.D,
            z=z if self.norm is None else None,
            dt_bias=bias,
            dt_softplus=bias is not None,
        )
        return self._finish(y, z)

    def extra_repr(self) -> str:
        """What the submodules do not show."""
        return f"heads={self.nheads}, headdim={self.headdim}, d_state={self.d_state}"

    def _exact(self, t: Tensor) -> Tensor:
        return t if t.dtype == torch.float64 else t.float()

    def _project(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sizes = [self.d_inner, self.conv1d.in_channels, self.nheads]
        z, xBC, dt = self.in_proj(u).split(sizes, -1)
        return z, xBC, dt

    def _split(self, xBC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """To heads and groups."""
        of_groups = self.ngroups * self.d_state
        x, B, C = xBC.split([self.d_inner, of_groups, of_groups], -1)
        groups = (self.ngroups, self.d_state)
        return (
            x.unflatten(-1, (self.nheads, self.headdim)),
            B.unflatten(-1, groups),
            C.unflatten(-1, groups),
        )

    def _finish(self, y: Tensor, z: Tensor) -> Tensor:
        """From y [..., H, P] to the result."""
        if self.norm is not None:
            y = swiglu(z, y)
        y = y.flatten(-2)
        if self.norm is not None and self.ngroups == 1:
            y = self.norm(y)
        elif self.norm is not None:
            of_groups = rms_norm(y.unflatten(-1, (self.ngroups, -1)), None, self.norm.eps)
            y = (of_groups.flatten(-2) * cast(Tensor, self.norm.weight)).to(y.dtype)
        result: Tensor = self.out_proj(y)
        return result
