"""What a public function says of arguments that it cannot take as Python objects.

Shapes, dtypes and numbers are checked in C++ (csrc/binding/arguments). Before that, torch compares
each argument's Python type with the op's schema, and its refusal quotes the schema. The functions
let it do that, and look only at a call that was refused: those that work pay nothing.
"""

import re
from collections.abc import Mapping
from typing import NoReturn

_REFUSED = re.compile(
    r"Expected a value of type '(?P<type>[^']+)' for argument '(?P<name>\w+)'"
    r" but instead found type '(?P<got>[^']+)'\.?\n.*?"
    r"Value: (?P<value>.*?)\n(?:Declaration|Cast error)",
    re.DOTALL,
)
_TYPES = {
    "Tensor": "a tensor",
    "float": "a number",
    "int": "an integer",
    "bool": "True or False",
    "str": "a string",
}
_WORDS = {  # what the op's schema does not know
    "approximate": '"none" or "tanh"',
    "casting": '"llama" or "gemma"',
    "residual": "a tensor or None",
    "reduction": '"mean", "sum" or "none"',
    "offsets": "an integer, a tensor or None",
}
_NAMES = {"offset": "offsets"}  # of schemas that take apart what the function takes
_SHOWN = 40  # characters of a value

_SHAPE = "the shape to normalise over is not given, it is the last dimension of x"
_DROP_IN = "thunderkittens.scaled_dot_product_attention, the drop-in for torch's function,"
_FLASH = {  # flash-attn's
    "softmax_scale": "say scale",
    "window_size": "say window, with None for no limit",
    "alibi_slopes": "there are none",
    "deterministic": "results are the same on every run",
    "return_attn_probs": "say return_lse, for the log-sum-exp; weights are never in memory",
}
_ELSEWHERE: dict[str, dict[str, str]] = {  # keywords of other libraries
    "attention": {
        **_FLASH,
        "is_causal": f"say causal, which is aligned to the bottom right, or call {_DROP_IN} whose "
        "is_causal is aligned to the top left",
        "attn_mask": f"say causal, window or cu_seqlens_q; {_DROP_IN} gives other masks to torch",
        "dropout_p": f"there is no dropout; {_DROP_IN} gives it to torch",
        "enable_gqa": "grouped heads are seen from the shapes of q and k",
    },
    "attention_qkvpacked": {
        **_FLASH,
        "is_causal": "say causal",
        "dropout_p": "there is no dropout",
        "cu_seqlens_q": "say cu_seqlens: q, k and v are of the same tokens",
        "cu_seqlens_k": "say cu_seqlens: q, k and v are of the same tokens",
    },
    "attention_decode": {
        "cache_seqlens": "say seqlens, which count the new tokens too",
        "block_table": "say page_table",
        "softmax_scale": "say scale",
        "window_size": "say window, with None for no limit",
        "causal": "a token sees the keys up to its own, never more",
        "is_causal": "a token sees the keys up to its own, never more",
    },
    "linear_attention": {
        "g": "say log_decay",
        "is_causal": "it always is causal",
        "causal": "it always is causal",
    },
    "layer_norm": {"normalized_shape": _SHAPE},
    "rms_norm": {"normalized_shape": _SHAPE},
    "add_layer_norm": {
        "normalized_shape": _SHAPE,
        "p": "say dropout_p",
        "prenorm": "the sum is always returned too",
        "residual_in_fp32": "the sum has the dtype of residual",
    },
    "add_rms_norm": {
        "normalized_shape": _SHAPE,
        "p": "say dropout_p",
        "prenorm": "the sum is always returned too",
        "residual_in_fp32": "the sum has the dtype of residual",
    },
    "cross_entropy": {
        "weight": "classes have no weights; torch.nn.functional.cross_entropy has them",
        "size_average": "say reduction",
        "reduce": "say reduction",
        "lse_square_scale": "say z_loss",
        "inplace_backward": "say inplace",
    },
    "linear_cross_entropy": {
        "size_average": "say reduction",
        "reduce": "say reduction",
        "lse_square_scale": "say z_loss",
    },
    "rotary": {
        "position_ids": "positions count from 0 and the offset: say offsets, or cu_seqlens",
        "seqlen_offsets": "say offsets",
        "rotary_dim": "it is twice the width of cos",
        "unsqueeze_dim": "heads are the last dimension but one",
    },
}


def refuse_keywords(op: str, given: Mapping[str, object]) -> NoReturn:
    """Raises for keywords that the function does not have.

    Args:
        op: The public function.
        given: At least one.

    Raises:
        TypeError: Always; of a keyword of torch's or another library's function, it says what
            takes its place here.
    """
    name = next(iter(given))
    advice = _ELSEWHERE.get(op, {}).get(name)
    raise TypeError(
        f"{op}() got an unexpected keyword argument {name!r}" + (f": {advice}" if advice else "")
    )


def refuse_bool(op: str, name: str, value: object) -> None:
    """Raises for a bool in place of an integer: torch would take it as 0 or 1.

    Args:
        op: The public function.
        name: The argument, which has a number, or may have one.
        value: What it was given.

    Raises:
        TypeError: The value is True or False.
    """
    if isinstance(value, bool):
        expected = _WORDS.get(name, "an integer")
        raise TypeError(f"{op}: {name} must be {expected}, got {value}")


def refuse_types(op: str, error: RuntimeError) -> None:
    """Raises in our words if the error says that an argument has the wrong Python type.

    Args:
        op: The public function.
        error: What its call of the op has raised.

    Raises:
        TypeError: Torch refused an argument's type. Any other error is left to the caller.
    """
    found = _REFUSED.search(str(error))
    if found is None:
        return
    name = _NAMES.get(found["name"], found["name"])
    wanted, optional = found["type"], " or None"
    if wanted.startswith("Optional["):
        wanted = wanted.removeprefix("Optional[").removesuffix("]")
    else:
        optional = ""
    expected = _WORDS.get(name) or _TYPES.get(wanted, wanted) + optional
    if wanted == found["got"] == "int":
        expected = "an integer of 64 bits"
    raise TypeError(
        f"{op}: {name} must be {expected}, got {_shown(found)}{_hint(op, found)}"
    ) from None


def _shown(found: re.Match[str]) -> str:
    """The type of what was given, and the value if it is short."""
    kind, value = found["got"], found["value"]
    if kind == "NoneType":
        return "None"
    return f"{kind} {value}" if len(value) <= _SHOWN and "\n" not in value else kind


def _hint(op: str, found: re.Match[str]) -> str:
    if found["got"] == "ndarray" and "Tensor" in found["type"]:
        return ": torch.from_numpy makes a tensor of it"
    is_sequence = found["got"] in ("tuple", "list", "Size")
    if is_sequence and found["name"] == "weight" and "normalized_shape" in _ELSEWHERE.get(op, {}):
        return f": {_SHAPE}"
    return ""
