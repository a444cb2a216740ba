"""What transformers masks, understood: a band of diagonals, and the run of keys that exist.

Transformers describes a mask by a function of indices and a padding mask; `describe` is what it
calls with these, and `Mask` what the attention function is then given.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from thunderkittens.integrations.transformers._bands import Band, band_of

HOLES = "the attention_mask has holes: a row of it is not one run of ones"
PACKED = "position_ids of packed sequences under torch.compile: give cu_seq_lens_q and _k too"
UNKNOWN = "a mask that is not a band of diagonals"


class Mask(BlockMask):
    """A mask of shape [B, 1, Sq, Sk] that is described, not stored, until somebody asks for it.

    A BlockMask by descent alone: beside tensors of four dimensions it is what transformers' own
    functions hand on untouched. Torch's code for block masks is never given one.

    Attributes:
        band: Which keys a row may see, by position; None where that is not known.
        reason: Why our kernels cannot take it; None where they can.
        origin: Of row 0, in columns of keys: an int, or a tensor where a cache counts on the
            device. Keys from origin + Sq on are those that a cache has room for.
        run: (first, end) [B] each: the keys of a sequence that exist, where some do not.
        sequences: [B, Sq]: the number of the packed sequence that a token is of; None for one.
    """

    def __init__(
        self,
        sizes: tuple[int, int, int],
        band: Band | None,
        reason: str | None,
        origin: int | Tensor,
        run: tuple[Tensor, Tensor] | None,
        sequences: Tensor | None,
        dense: Callable[[], Tensor],
    ) -> None:
        self.sizes, self.band, self.reason = sizes, band, reason
        self.origin, self.run, self.sequences = origin, run, sequences
        self._build = dense
        self._dense: Tensor | None = None
        self._bounds: tuple[Tensor, Tensor, int, int] | None = None
        self._seqlens: Tensor | None = None
        self._ranges: tuple[Tensor, Tensor] | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, rows, keys = self.sizes
        return batch, 1, rows, keys

    ndim = 4

    def __repr__(self) -> str:
        return f"Mask(shape={self.shape}, reason={self.reason!r})"

    __str__ = __repr__

    def to(self, device: object, *_: object, **__: object) -> "Mask":
        """Itself: the attention function moves what it takes."""
        return self

    def contiguous(self) -> "Mask":
        """Itself: transformers' `generate` asks for it."""
        return self

    def dense(self) -> Tensor:
        """[B, 1, Sq, Sk], bool: what transformers' own function makes, made once a forward."""
        if self._dense is None:
            self._dense = self._build()
        return self._dense

    def seqlens(self, device: torch.device) -> Tensor:
        """[B], int32: the keys up to the last row's own."""
        if self._seqlens is None:
            batch, rows, _ = self.sizes
            if isinstance(self.origin, Tensor):
                made = (self.origin + rows).to(torch.int32).expand(batch).contiguous()
            else:
                made = torch.full((batch,), self.origin + rows, dtype=torch.int32, device=device)
            self._seqlens = made
        return self._seqlens

    def key_ranges(self, device: torch.device) -> tuple[Tensor, Tensor] | None:
        """leftpad_k and seqused_k of a run, [B] int32; None where they cannot say it.

        A causal row's diagonal has to be its own key, behind which there is nothing to hide;
        without a band there is no diagonal. Rows that are padding may see padding behind them.
        """
        band, run = self.band or Band(), self.run
        unbounded = math.isinf(band.low) and math.isinf(band.high)
        if run is None or not (unbounded or band.high == 0):
            return None
        if self._ranges is None:
            end = run[1].to(torch.int32) if unbounded else self.seqlens(device)
            self._ranges = run[0].to(torch.int32), end
        return self._ranges

    def bounds(self) -> tuple[Tensor, Tensor, int, int]:
        """cu_seqlens of q and k, [n + 1] int32, and the longest of either, for `attention`.

        Rows and keys are those of all sequences, one behind the other. A sequence of keys with a
        run is cut in three: before it, the run, and behind it; rows that are padding see padding.
        """
        if self._bounds is None:
            packed, run = self.sequences, self.run
            if packed is not None:
                self._bounds = self._of_sequences(packed)
            else:
                self._bounds = self._of_run(*cast("tuple[Tensor, Tensor]", run))
        return self._bounds

    def _of_run(self, first: Tensor, end: Tensor) -> tuple[Tensor, Tensor, int, int]:
        _, rows, keys = self.sizes
        from_row = (first - self.origin).clamp(0, rows)
        to_row = torch.maximum((end - self.origin).clamp(0, rows), from_row)
        return _cumulative(from_row, to_row, rows), _cumulative(first, end, keys), rows, keys

    def _of_sequences(self, sequences: Tensor) -> tuple[Tensor, Tensor, int, int]:
        """Of packed sequences: their number and the longest are read from the device."""
        begins = torch.ones_like(sequences, dtype=torch.bool)
        begins[:, 1:] = sequences[:, 1:] != sequences[:, :-1]
        bounds = begins.flatten().nonzero().flatten()
        bounds = torch.nn.functional.pad(bounds, (0, 1), value=sequences.numel())
        longest = int(bounds.diff().max())
        return bounds.to(torch.int32), bounds.to(torch.int32), longest, longest


def _cumulative(first: Tensor, end: Tensor, length: int) -> Tensor:
    """[3 B + 1], int32: 0 and the ends of [0, first), [first, end), [end, length) of each."""
    starts = torch.arange(first.shape[0], device=first.device) * length
    ends = torch.stack((starts + first, starts + end, starts + length), dim=1).flatten()
    return torch.nn.functional.pad(ends, (1, 0)).to(torch.int32)


def describe(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    *,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool | None = None,
    use_vmap: bool = False,
    local_size: int | None = None,
    config: Any = None,
    device: torch.device | str = "cpu",
    **_: object,
) -> Mask | Tensor:
    """The mask function that transformers calls, once for each kind of mask and forward.

    Reads two flags of attention_mask from the device, as transformers' own does; none without one,
    under torch.compile, or while a CUDA graph is captured, where holes in it are an error that the
    device raises.
    """
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    if mask_function is None:
        mask_function = causal_mask_function
    if isinstance(q_offset, Tensor):
        q_offset = q_offset.clone()  # the cache counts on in place before anybody asks for `dense`
    dense: Callable[[], Tensor] = functools.partial(
        sdpa_mask,
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        allow_is_causal_skip=False,
        allow_is_bidirectional_skip=False,
        use_vmap=use_vmap,
        device=device,
    )
    skips = allow_is_causal_skip or bool(allow_is_bidirectional_skip)
    compiling = torch.compiler.is_compiling()
    band: Band | None = None
    reason: str | None = UNKNOWN
    sequences = None
    if compiling and not (skips or mask_function is causal_mask_function):
        # It may index tensors, which cannot be tried while torch.compile traces.
        alone = attention_mask is None and kv_length == q_length
        reason = PACKED if alone else UNKNOWN
    elif not (compiling and local_size is not None and local_size != _window(config)):
        # (what is left out are chunks, which index a tensor too)
        if not compiling:
            mask_function, sequences = _packed(mask_function)
        band = band_of(mask_function)
        reason = UNKNOWN if band is None else None
        if band is not None and not (skips or use_vmap) and sequences is None and q_length > 1:
            return dense()  # asked for by a model that joins it to another
    sizes = (batch_size, q_length, kv_length)
    origin = q_offset - kv_offset
    run = None
    if band is not None:
        reason = _beyond(band, origin, q_length, kv_length)
    if band is not None and reason is None and attention_mask is not None:
        needed = origin + q_length if band.high == 0 else kv_length
        run, reason = _run(attention_mask, kv_length, kv_offset, needed)
    return Mask(sizes, band, reason, origin, run, sequences, dense)


def _beyond(band: Band, origin: int | Tensor, rows: int, keys: int) -> str | None:
    """Why no window of `attention` is the band; None where one is."""
    if band.low > 0 or band.high < 0:
        return UNKNOWN
    if band.high == 0 or (math.isinf(band.low) and math.isinf(band.high)):
        return None
    whole = isinstance(origin, int) and origin + rows == keys
    return None if whole else "a two-sided window over other keys than the rows' own"


def _window(config: Any) -> int | None:
    window: int | None = getattr(config, "sliding_window", None)
    return window


def _packed(mask_function: Callable[..., Any]) -> tuple[Callable[..., Any], Tensor | None]:
    """What a packed mask function is made of, or itself and None: known by its code."""
    known = _codes()
    if getattr(mask_function, "__code__", None) is not known["and"]:
        return mask_function, None
    parts = _free(mask_function)["mask_functions"]
    codes = [getattr(part, "__code__", None) for part in parts]
    if "remap" in known and codes == [known["same"], known["remap"]]:
        return _free(parts[1])["mask_function"], _free(parts[0])["packed_sequence_mask"]
    if len(codes) == 2 and codes[1] is known["same"]:
        # Transformers before remap: positions count on from sequence to sequence, and a band
        # compares nothing but their distance.
        return parts[0], _free(parts[1])["packed_sequence_mask"]
    return mask_function, None


def _free(function: Callable[..., Any]) -> dict[str, Any]:
    """The variables of a closure."""
    made: Any = function
    cells = (cell.cell_contents for cell in made.__closure__ or ())
    return dict(zip(made.__code__.co_freevars, cells, strict=True))


@functools.cache
def _codes() -> dict[str, Any]:
    from transformers import masking_utils

    numbers, causal = torch.zeros(1, 1), masking_utils.causal_mask_function
    made: dict[str, Any] = {
        "and": masking_utils.and_masks(causal),
        "same": masking_utils.packed_sequence_mask_function(numbers),
    }
    remap = getattr(masking_utils, "remap_positions_for_packed_sequence", None)
    if remap is not None:
        made["remap"] = remap(causal, numbers)
    return {name: function.__code__ for name, function in made.items()}


def _run(
    attention_mask: Tensor, kv_length: int, kv_offset: int, needed: int | Tensor
) -> tuple[tuple[Tensor, Tensor] | None, str | None]:
    """(first, end) of the keys that exist, None where all do; and why they are no run, or None.

    needed: Keys from there on are of no concern.
    """
    seen = attention_mask[:, kv_offset : kv_offset + kv_length]
    columns = torch.arange(seen.shape[1], device=seen.device)
    first = (seen.cumsum(-1) == 0).sum(-1)
    end = first + seen.sum(-1)
    holes = ((columns >= first[:, None]) & (columns < end[:, None]) & ~seen).any()
    capturing = seen.is_cuda and torch.cuda.is_current_stream_capturing()
    if torch.compiler.is_compiling() or capturing:
        torch._assert_async(~holes, HOLES)
        return (first, end), None
    whole = ((first == 0) & (end >= needed)).all()
    has_holes, is_whole = torch.stack((holes, whole)).tolist()
    if has_holes:
        return None, HOLES
    return (None if is_whole else (first, end)), None
