"""How tensors of attention may lie in memory."""

import torch

LAYOUTS = (
    "transposed",
    "packed",
    "expanded",
    "offset",
    "shifted",
    "stepped",
    "odd strides",
    "odd ones",
)
COPIED = ("expanded", "offset", "stepped", "odd strides")


def lay_out(tensors: list[torch.Tensor], layout: str) -> list[torch.Tensor]:
    """q, k and v [B, S, H, D] with the same values and other strides."""
    if layout == "transposed":  # slices of [B, H, S, D]
        return [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors]
    if layout == "packed":  # slices of [B, S, Hq + 2 Hk, D]; needs as many rows as keys, and Dv = D
        heads = [t.shape[2] for t in tensors]
        return list(torch.cat(tensors, 2).split(heads, 2))
    if layout == "expanded":  # one batch of keys and values for all
        return [tensors[0], *(t[:1].expand_as(t) for t in tensors[1:])]
    if layout == "offset":
        return [t.new_zeros(t.numel() + 1)[1:].view(t.shape).copy_(t) for t in tensors]
    if layout == "shifted":  # by 16 bytes
        return [t.new_zeros(t.numel() + 8)[8:].view(t.shape).copy_(t) for t in tensors]
    if layout == "stepped":
        return [t.repeat_interleave(2, -1)[..., ::2] for t in tensors]
    if layout == "odd strides":
        return [torch.cat([t, t[..., :3]], -1)[..., : t.shape[-1]] for t in tensors]
    if layout == "odd ones":  # strides of dimensions of size 1, which mean nothing
        return [
            t.as_strided(
                t.shape, [7 if s == 1 else d for s, d in zip(t.shape, t.stride(), strict=True)]
            )
            for t in tensors
        ]
    return tensors
